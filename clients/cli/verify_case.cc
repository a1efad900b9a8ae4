// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/verify_case.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "clients/cli/case_data.h"
#include "clients/cli/temporary_weights.h"

namespace tetrad::cli {
namespace {

// Whether a status says something about the case, not about the daemon's day.
bool IsAnswer(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return false;
    default:
      return true;
  }
}

class CaseRun {
 public:
  CaseRun(const Session& session, const GroupedCase& c, const VerifyCaseOptions& options)
      : session_(session),
        case_(c),
        options_(options),
        data_(c, options.kind, options.seed, options.threads) {
    result_.check = IsExact(options.kind) ? Check::kBits : Check::kBound;
    for (const CaseGroup& g : c.groups) result_.output_elements += int64_t{g.m} * g.n;
  }

  absl::StatusOr<CaseResult> Run() {
    absl::Status status = Execute();
    if (!status.ok()) {
      if (!IsAnswer(status)) return status;
      result_.failure = absl::StrCat("refused: ", status.ToString());
    }
    result_.pass = result_.failure.empty();
    return std::move(result_);
  }

 private:
  absl::Status Execute() {
    const TemporaryWeights weights(session_.client, "tetradctl-verify");
    v1::UploadHeader header = ToUploadHeader(case_, weights.name());
    header.mutable_alpha()->Assign(data_.alpha_b().begin(), data_.alpha_b().end());
    const auto uploaded =
        session_.client.Upload(header, data_.codes(), data_.scales(), nullptr, session_.call);
    if (!uploaded.ok()) return uploaded.status();

    const auto plan = session_.client.Prepare(ToSignature(case_, header.name()), session_.call);
    if (!plan.ok()) return plan.status();
    absl::Status status = ExecutePlan(*plan);
    const absl::Status released = session_.client.Release(plan->plan(), session_.call);
    return status.ok() ? released : status;
  }

  absl::Status ExecutePlan(const v1::PrepareResponse& plan) {
    result_.kernel = plan.info().kernel();
    result_.floor_us = plan.info().floor().floor_us();
    if (!SizesAgree(plan.info())) return absl::OkStatus();
    v1::ExecuteRequest& request = data_.request();
    request.set_plan(plan.plan());
    std::string output;
    for (int i = 0; i < options_.executions; ++i) {
      auto response = session_.client.Execute(request, session_.call);
      if (!response.ok()) return response.status();
      if (i > 0 && response->output() != output) {
        result_.failure = "executing it again gave other bytes";
        return absl::OkStatus();
      }
      output = std::move(*response->mutable_output());
      if (i == 0 || response->timings().device_us() < result_.device_us) {
        result_.device_us = response->timings().device_us();
        result_.share = response->timings().share();
      }
    }
    return Compare(plan.info(), output);
  }

  // The sizes a plan states are part of the contract; what it wants of blocked
  // scales over offsets depends on the worst distribution of rows.
  bool SizesAgree(const v1::PlanInfo& info) {
    const WireLayout& layout = data_.layout();
    const bool worst_case =
        case_.m_source == MSource::kOffsets && case_.types.a_scale_layout == ScaleLayout::kBlocked;
    const bool scales_agree = worst_case ? info.activation_scale_bytes() >= layout.a_scale_bytes
                                         : info.activation_scale_bytes() == layout.a_scale_bytes;
    if (info.activation_bytes() != layout.a_bytes || !scales_agree ||
        info.output_bytes() != layout.c_bytes || info.rows() != case_.rows()) {
      result_.failure =
          absl::StrCat("the plan wants activations ", info.activation_bytes(), ", scales ",
                       info.activation_scale_bytes(), ", output ", info.output_bytes(),
                       " bytes of ", info.rows(), " rows; the contract says ", layout.a_bytes, ", ",
                       layout.a_scale_bytes, ", ", layout.c_bytes, " and ", case_.rows());
      return false;
    }
    data_.request().mutable_inline_operands()->mutable_activation_scales()->resize(
        static_cast<size_t>(info.activation_scale_bytes()));
    return true;
  }

  absl::Status Compare(const v1::PlanInfo& info, const std::string& output) {
    if (static_cast<int64_t>(output.size()) != data_.layout().c_bytes) {
      result_.failure =
          absl::StrCat("the reply has ", output.size(), " bytes, not ", data_.layout().c_bytes);
      return absl::OkStatus();
    }
    const absl::StatusOr<Accumulator> accumulator = AccumulatorOf(info.device());
    if (!accumulator.ok()) return accumulator.status();
    const std::vector<GroupProblem> problems = data_.Problems(output);
    result_.verdict = Verify(case_.types, problems,
                             {.check = result_.check,
                              .accumulator = *accumulator,
                              .threads = options_.threads,
                              .max_products = options_.max_products,
                              .seed = options_.seed});
    // No elements, nothing to find wrong in them.
    if (result_.output_elements > 0 && !result_.verdict.pass) {
      result_.failure = result_.verdict.ToString();
      return absl::OkStatus();
    }
    if (const int64_t gap = FindNonzeroGap(case_, data_.layout(), output); gap >= 0) {
      result_.failure =
          absl::StrCat("byte ", gap, " of the output belongs to no live element and is 0x",
                       absl::Hex(static_cast<uint8_t>(output[gap])));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Accumulator> AccumulatorOf(const std::string& device) const {
    const auto status = session_.client.GetStatus(session_.call);
    if (!status.ok()) return status.status();
    for (const v1::DeviceStatus& candidate : status->devices()) {
      if (candidate.uuid() != device) continue;
      return candidate.capability() == "cpu" ? Accumulator::kSerialFp32 : Accumulator::kTensorCore;
    }
    return absl::InternalError(absl::StrCat("the plan names device '", device,
                                            "', which the daemon's status does not list"));
  }

  const Session& session_;
  const GroupedCase& case_;
  const VerifyCaseOptions& options_;
  CaseData data_;
  CaseResult result_;
};

}  // namespace

absl::StatusOr<CaseResult> VerifyCase(const Session& session, const GroupedCase& c,
                                      const VerifyCaseOptions& options) {
  CaseRun run(session, c, options);
  return run.Run();
}

}  // namespace tetrad::cli
