// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "clients/cli/bench_report.h"
#include "clients/cli/case_data.h"
#include "clients/cli/commands.h"
#include "clients/cli/exit_code.h"
#include "clients/cli/load_generator.h"
#include "clients/cli/one_hot_check.h"
#include "clients/cli/progress.h"
#include "clients/cli/random_operands.h"
#include "clients/cli/temporary_weights.h"
#include "kernels/compare.h"

namespace tetrad::cli {
namespace {

// Of the reference that one output is compared with: a second or so.
constexpr int64_t kCheckedProducts = 2'000'000'000;

// What is sent again and again, and what must come back.
struct Subject {
  GroupedCase shape;
  v1::PrepareResponse plan;
  v1::ExecuteRequest request;
  std::string output;
  std::string checked;  // how
  std::string failure;  // empty: nothing is wrong
};

int Threads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

// Weights of this run's own, whose values are known: every compared element has
// the bits of the FP64 reference.
absl::Status CheckKnown(const Session& session, const CaseData& data, uint64_t seed,
                        Subject& subject) {
  const auto status = session.client.GetStatus(session.call);
  if (!status.ok()) return status.status();
  const auto device =
      std::find_if(status->devices().begin(), status->devices().end(),
                   [&](const auto& d) { return d.uuid() == subject.plan.info().device(); });
  const bool cpu = device != status->devices().end() && device->capability() == "cpu";
  auto response = session.client.Execute(subject.request, session.call);
  if (!response.ok()) return response.status();
  subject.output = std::move(*response->mutable_output());
  if (static_cast<int64_t>(subject.output.size()) != data.layout().c_bytes) {
    subject.failure = absl::StrCat("the reply has ", subject.output.size(), " bytes, not ",
                                   data.layout().c_bytes);
    return absl::OkStatus();
  }
  const Verdict verdict =
      Verify(subject.shape.types, data.Problems(subject.output),
             {.check = Check::kBits,
              .accumulator = cpu ? Accumulator::kSerialFp32 : Accumulator::kTensorCore,
              .threads = Threads(),
              .max_products = kCheckedProducts,
              .seed = seed});
  if (!verdict.pass) subject.failure = verdict.ToString();
  subject.checked = absl::StrCat(verdict.elements, " elements bit-equal to the reference");
  return absl::OkStatus();
}

// Weights of the daemon, whose values are not known.
absl::Status CheckUnknown(const Session& session, const BenchCommand& command, Subject& subject) {
  const auto list = session.client.ListWeights(session.call);
  if (!list.ok()) return list.status();
  const v1::WeightsInfo* weights = nullptr;
  for (const v1::WeightsInfo& info : list->weights()) {
    if (absl::StrCat(info.name(), "@", info.version()) == subject.plan.weights()) weights = &info;
  }
  if (weights == nullptr) {
    return absl::AbortedError(
        absl::StrCat("weights ", subject.plan.weights(), " went while they were looked at"));
  }
  auto shape = CaseOf(command.signature, *weights);
  if (!shape.ok()) return shape.status();
  subject.shape = *std::move(shape);
  const RandomOperands wanted{command.signature, command.live_rows, command.seed};
  if (command.signature.has_capacity()) {
    const auto live = LiveRows(wanted, subject.plan.info());
    if (!live.ok()) return live.status();
    for (size_t g = 0; g < live->size(); ++g) subject.shape.groups[g].m = (*live)[g];
  }
  auto request = MakeRandomRequest(session, wanted, subject.plan);
  if (!request.ok()) return request.status();
  subject.request = *std::move(request);
  auto failure = CheckOneHot(session, command.signature, subject.plan, subject.shape, command.seed);
  if (!failure.ok()) return failure.status();
  subject.failure = *std::move(failure);
  subject.checked = "one-hot rows bit-equal to the weights";
  auto response = session.client.Execute(subject.request, session.call);
  if (!response.ok()) return response.status();
  subject.output = std::move(*response->mutable_output());
  return absl::OkStatus();
}

// Every reply is compared with the first: whatever else it is, it must be that.
absl::Status CallOnce(const Session& session, const Subject& subject, std::atomic<int64_t>& wrong,
                      LoadSample& sample) {
  const absl::Time start = absl::Now();
  const auto response = session.client.Execute(subject.request, session.call);
  sample.client_us = absl::ToDoubleMicroseconds(absl::Now() - start);
  if (!response.ok()) return response.status();
  const v1::Timings& timings = response->timings();
  sample.queued_us = timings.queued_us();
  sample.device_us = timings.device_us();
  sample.total_us = timings.total_us();
  sample.share = timings.share();
  if (response->output() == subject.output) return absl::OkStatus();
  ++wrong;
  return absl::DataLossError("the reply to the same request has other bytes than the first");
}

int64_t OperandBytes(const v1::InlineOperands& operands) {
  return static_cast<int64_t>(operands.activations().size() + operands.activation_scales().size()) +
         4 * (operands.alpha_size() + operands.row_scale_size() + operands.m_values_size());
}

int ExitCode(const LoadResult& load, int64_t wrong) {
  if (wrong > 0) return kExitVerificationFailed;
  if (load.failed() > 0) return kExitDaemon;
  return load.stopped ? kExitInterrupted : kExitOk;
}

absl::StatusOr<int> Measure(const Session& session, const BenchCommand& command,
                            const Subject& subject) {
  std::atomic<int64_t> wrong{0};
  const auto call = [&](LoadSample& sample) { return CallOnce(session, subject, wrong, sample); };
  ProgressBar bar(session.output.err, session.output.progress, "measuring",
                  ProgressBar::Unit::kCount);
  LoadOptions options{.in_flight = command.in_flight,
                      .calls = int64_t{command.warmups} * command.in_flight,
                      .duration = command.duration};
  const LoadResult warmup = GenerateLoad(options, session.call.cancel, call);
  options.calls = command.requests;
  options.progress = [&](int64_t done, absl::Duration elapsed) {
    // By whichever limit is nearer.
    const double part = std::max(absl::FDivDuration(elapsed, command.duration),
                                 static_cast<double>(done) / static_cast<double>(command.requests));
    bar.Update(done, static_cast<int64_t>(static_cast<double>(done) / std::max(part, 1e-9)));
  };
  BenchReport report;
  report.load = GenerateLoad(options, session.call.cancel, call);
  bar.Clear();
  MergeErrors(warmup, report.load);
  if (report.load.samples.empty() && report.load.errors.empty()) {
    return absl::CancelledError("interrupted before the first request was answered");
  }
  report.weights = command.shape.empty() ? subject.plan.weights() : command.shape;
  report.kernel = subject.plan.info().kernel();
  report.checked = subject.checked;
  report.plan = command.plan;
  report.capacity = command.signature.has_capacity();
  report.in_flight = command.in_flight;
  report.flops = subject.shape.flops();
  report.request_bytes = OperandBytes(subject.request.inline_operands());
  report.reply_bytes = static_cast<int64_t>(subject.output.size());
  report.floor_us = subject.plan.info().floor().floor_us();
  Print(session.output, report);
  return ExitCode(report.load, wrong);
}

}  // namespace

absl::StatusOr<int> Run(const Session& session, const BenchCommand& command) {
  Subject subject;
  v1::Signature signature = command.signature;
  std::unique_ptr<CaseData> data;
  std::optional<TemporaryWeights> own;
  if (!command.shape.empty()) {
    subject.shape = ContestCase(*FindShape(command.shape));
    data = std::make_unique<CaseData>(subject.shape, DataKind::kContest, command.seed, Threads());
    own.emplace(session.client, "tetradctl-bench");
    signature = ToSignature(subject.shape, own->name());
    const auto uploaded =
        session.client.Upload(ToUploadHeader(subject.shape, own->name()), data->codes(),
                              data->scales(), nullptr, session.call);
    if (!uploaded.ok()) return uploaded.status();
  }
  auto plan = session.client.Prepare(signature, session.call);
  if (!plan.ok()) return plan.status();
  subject.plan = *std::move(plan);
  // Also after an interrupt, so without its cancellation.
  const absl::Cleanup release = [&session, &subject] {
    (void)session.client.Release(subject.plan.plan(), {.deadline = kCleanUpDeadline, .cancel = {}});
  };
  absl::Status status;
  if (data != nullptr) {
    subject.request = data->request();
    subject.request.set_plan(subject.plan.plan());
    status = CheckKnown(session, *data, command.seed, subject);
  } else {
    status = CheckUnknown(session, command, subject);
  }
  if (!status.ok()) return status;
  if (!subject.failure.empty()) {
    session.output.PrintError(absl::DataLossError(absl::StrCat("not measured: ", subject.failure)));
    return kExitVerificationFailed;
  }
  if (!command.plan) *subject.request.mutable_signature() = signature;
  return Measure(session, command, subject);
}

}  // namespace tetrad::cli
