// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/case_runner.h"

#include <future>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#include "bench/bars/bench_device.h"
#include "bench/bars/instance_of.h"
#include "clients/cli/case_data.h"
#include "engine/support/status_macros.h"
#include "kernels/compare.h"

namespace tetrad::bars {
namespace {

constexpr char kClient[] = "bars";
constexpr char kWeights[] = "bars";

absl::Status Register(WeightsRegistry& weights, const cli::GroupedCase& c,
                      const cli::CaseData& data) {
  WeightsSpec spec;
  spec.name = kWeights;
  for (const cli::CaseGroup& group : c.groups) spec.groups.push_back({group.n, group.k});
  spec.scale_layout = c.types.b_scale_layout;
  spec.alpha = data.alpha_b();
  TETRAD_ASSIGN_OR_RETURN(const int64_t version, weights.Begin(std::move(spec)));
  TETRAD_RETURN_IF_ERROR(weights.Write(kWeights, version, WeightsOperand::kCodes, 0,
                                       std::as_bytes(std::span(data.codes()))));
  TETRAD_RETURN_IF_ERROR(weights.Write(kWeights, version, WeightsOperand::kScales, 0,
                                       std::as_bytes(std::span(data.scales()))));
  return weights.Seal(kWeights, version).status();
}

SignatureRequest SignatureOf(const cli::GroupedCase& c) {
  SignatureRequest signature;
  signature.weights = kWeights;
  signature.types = c.types;
  signature.form = c.form;
  signature.m_source = c.m_source;
  if (c.m_source == MSource::kHost) {
    for (const cli::CaseGroup& group : c.groups) signature.m.push_back(group.m);
  }
  signature.capacity_rows = c.capacity_rows;
  signature.c_stride = c.c_stride;
  signature.row_scale = c.row_scale;
  return signature;
}

InlineOperands OperandsOf(const v1::InlineOperands& operands) {
  return {
      .activations = operands.activations(),
      .activation_scales = operands.activation_scales(),
      .alpha = {operands.alpha().data(), static_cast<size_t>(operands.alpha_size())},
      .row_scale = {operands.row_scale().data(), static_cast<size_t>(operands.row_scale_size())},
      .m_values = {operands.m_values().data(), static_cast<size_t>(operands.m_values_size())}};
}

absl::StatusOr<Executed> ExecuteAndWait(Engine& engine, const ExecuteRequest& request) {
  std::promise<absl::StatusOr<Executed>> answer;
  engine.Execute(request, [&answer](absl::StatusOr<Executed> executed) {
    answer.set_value(std::move(executed));
  });
  return answer.get_future().get();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CaseRunner>> CaseRunner::Open(const Setting& setting) {
  TETRAD_ASSIGN_OR_RETURN(auto engine, Engine::Create(FactoryOf(setting), {}));
  return std::unique_ptr<CaseRunner>(new CaseRunner(std::move(engine), setting.threads));
}

absl::Status CaseRunner::Run(const cli::GroupedCase& c, DataKind kind, uint64_t seed) {
  cli::CaseData data(c, kind, seed, threads_);
  const absl::Cleanup drop = [this] { (void)engine_->weights().Drop(kWeights); };
  TETRAD_RETURN_IF_ERROR(Register(engine_->weights(), c, data));
  const SignatureRequest signature = SignatureOf(c);
  TETRAD_ASSIGN_OR_RETURN(const PreparedPlan prepared, engine_->Prepare(kClient, signature));
  last_variant_ = VariantOf(*prepared.plan);
  const absl::Cleanup release = [&] { (void)engine_->Release(kClient, prepared.handle); };
  // With offsets and blocked scales the plan wants those of the worst distribution of rows.
  data.request().mutable_inline_operands()->mutable_activation_scales()->resize(
      static_cast<size_t>(prepared.plan->wire.a_scale_bytes));

  ExecuteRequest request;
  request.client = kClient;
  request.plan = prepared.handle;
  request.operands = OperandsOf(data.request().inline_operands());
  TETRAD_ASSIGN_OR_RETURN(const Executed executed, ExecuteAndWait(*engine_, request));
  if (executed.output_bytes() != data.layout().c_bytes) {
    return absl::InternalError(absl::StrCat("the output has ", executed.output_bytes(),
                                            " bytes, not ", data.layout().c_bytes));
  }
  std::string output(static_cast<size_t>(executed.output_bytes()), '\0');
  TETRAD_RETURN_IF_ERROR(executed.CopyOutput(std::as_writable_bytes(std::span(output))));

  const bool cpu = engine_->device_limits().capability == "cpu";
  const Verdict verdict =
      Verify(c.types, data.Problems(output),
             {.check = IsExact(kind) ? Check::kBits : Check::kBound,
              .accumulator = cpu ? Accumulator::kSerialFp32 : Accumulator::kTensorCore,
              .threads = threads_,
              .seed = seed});
  // No elements, nothing to find wrong in them.
  if (c.live_rows() > 0 && !verdict.pass) return absl::DataLossError(verdict.ToString());
  if (const int64_t gap = cli::FindNonzeroGap(c, data.layout(), output); gap >= 0) {
    return absl::DataLossError(absl::StrCat("byte ", gap, " belongs to no live element, not 0"));
  }
  return absl::OkStatus();
}

}  // namespace tetrad::bars
