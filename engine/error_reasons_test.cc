// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the engine's errors tell programs: for each reason that a request can
// meet here one request that does, with the fields at fault. Codes and messages
// are tested where the checks are.
#include <cmath>
#include <functional>
#include <future>
#include <optional>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/cpu_device.h"
#include "engine/engine.h"
#include "engine/sample_request.h"
#include "engine/support/error_detail.h"

namespace tetrad {
namespace {

class ErrorReasonsTest : public ::testing::Test {
 protected:
  ErrorReasonsTest() {
    EngineOptions options{.max_inline_bytes = 100'000};
    options.leases = {.max_leases = 2, .client_blocks = 2};
    options.weights = {.max_versions = 4, .max_pieces = 2};
    engine_ = *Engine::Create(
        [](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
          return CpuDevice::Create({.threads = 1, .memory_bytes = 64 << 20, .measure_rates = false},
                                   std::move(wake));
        },
        options);
    EXPECT_TRUE(sample_.Register(weights(), "w").ok());
    signature_ = sample_.Signature("w");
    operands_ = sample_.Inline();
  }

  WeightsRegistry& weights() { return engine_->weights(); }
  absl::Status Run(const ExecuteRequest& request) {
    std::promise<absl::Status> promise;
    engine_->Execute(request, [&](const absl::StatusOr<Executed>& executed) {
      promise.set_value(executed.status());
    });
    return promise.get_future().get();
  }
  absl::Status Run() {
    return Run({.client = "test", .signature = &signature_, .operands = operands_});
  }
  absl::Status Write(const std::string& name, int64_t version, WeightsOperand operand,
                     int64_t offset, std::string_view data) {
    return weights().Write(name, version, operand, offset, std::as_bytes(std::span(data)));
  }
  // Device-side M, which needs the stacked form.
  void UseCapacity(MSource source, int64_t rows) {
    signature_.m.clear();
    signature_.form = GroupForm::kStacked;
    signature_.m_source = source;
    signature_.capacity_rows = rows;
  }

  // That it is of the reason, and the first violation is this one; an empty field: there is none.
  static void Expect(const absl::Status& status, Reason reason, std::string_view field = {},
                     std::string_view value = {}, std::string_view limit = {},
                     std::optional<int64_t> group = {}) {
    const std::optional<ErrorDetail> detail = DetailOf(status);
    ASSERT_TRUE(detail.has_value()) << status;
    EXPECT_EQ(ReasonName(detail->reason), ReasonName(reason)) << status;
    EXPECT_EQ(status.code(), CodeOf(reason)) << status;
    ASSERT_EQ(detail->violations.empty(), field.empty()) << status;
    if (field.empty()) return;
    EXPECT_EQ(detail->violations[0].field, field) << status;
    EXPECT_EQ(detail->violations[0].value, value) << status;
    EXPECT_EQ(detail->violations[0].limit, limit) << status;
    EXPECT_EQ(detail->violations[0].group, group) << status;
  }

  SampleRequest sample_{{{5, 24, 64}, {3, 24, 64}}, {}};
  std::unique_ptr<Engine> engine_;
  SignatureRequest signature_;
  InlineOperands operands_;
};

TEST_F(ErrorReasonsTest, OfSignatures) {
  EXPECT_TRUE(Run().ok());
  const SignatureRequest good = signature_;
  signature_.c_stride = -1;
  Expect(Run(), Reason::kFieldOutOfRange, "signature.output_stride", "-1", "at least 0");
  signature_.c_stride = 23;
  Expect(Run(), Reason::kFieldOutOfRange, "signature.output_stride", "23", "0 or at least 24", 0);
  signature_ = good;
  signature_.m = {5, -7};
  Expect(Run(), Reason::kFieldOutOfRange, "signature.exact.m[1]", "-7", "at least 0", 1);
  signature_.m = {5};
  Expect(Run(), Reason::kSizeMismatch, "signature.exact.m", "1 values", "2 values");
  signature_ = good;
  signature_.types.a_type = static_cast<ActivationType>(9);
  Expect(Run(), Reason::kUnknownEnumValue, "signature.activation_type", "9", "0 to 2");
  signature_ = good;
  UseCapacity(MSource::kCounts, 0);
  Expect(Run(), Reason::kFieldOutOfRange, "signature.capacity.rows", "0", "at least 1");
  UseCapacity(MSource::kCounts, 4);
  signature_.form = GroupForm::kSeparate;
  Expect(Run(), Reason::kFieldConflict, "signature.group_form", "", "STACKED");
  signature_ = good;
  signature_.weights = "no name";
  Expect(Run(), Reason::kFieldMalformed, "signature.weights", "no name",
         "1 to 128 characters of A-Z a-z 0-9 . _ / -");
  signature_.weights = "unknown";
  Expect(Run(), Reason::kWeightsNotFound, "signature.weights", "unknown");
  ASSERT_TRUE(weights().Begin(sample_.Spec("open")).ok());
  signature_.weights = "open";
  Expect(Run(), Reason::kWeightsNotSealed, "signature.weights", "open");
  Expect(Run(ExecuteRequest{}), Reason::kFieldMissing, "plan_or_signature");
}

TEST_F(ErrorReasonsTest, OfOperands) {
  const InlineOperands good = operands_;
  operands_.activations.remove_suffix(1);
  Expect(Run(), Reason::kSizeMismatch, "inline_operands.activations", "255 bytes", "256 bytes");
  operands_ = good;
  const std::vector<float> alpha = {1, NAN};
  operands_.alpha = alpha;
  Expect(Run(), Reason::kFieldOutOfRange, "inline_operands.alpha[1]", "nan", "a finite number", 1);
  operands_ = good;
  signature_.m = {5, 100'000};
  const std::optional<ErrorDetail> large = DetailOf(Run());
  ASSERT_TRUE(large.has_value());
  EXPECT_EQ(large->reason, Reason::kMessageTooLarge);
  EXPECT_EQ(large->violations[0].field, "inline_operands");
  EXPECT_EQ(large->violations[0].limit, "at most 100000 bytes");
  UseCapacity(MSource::kCounts, 4);
  const std::vector<int32_t> values = {4, 5};
  operands_.m_values = values;
  Expect(Run(), Reason::kCountsBeyondCapacity, "inline_operands.m_values[1]", "5",
         "0 to the 4 rows reserved", 1);
}

TEST_F(ErrorReasonsTest, OfBlocks) {
  const std::string lease = engine_->Attach("test", "")->lease;
  Expect(engine_->Allocate("test", lease, 0).status(), Reason::kFieldOutOfRange, "bytes", "0",
         "at least 1");
  Expect(engine_->Allocate("test", lease, 60 << 20).status(), Reason::kQuota);
  const std::string block = engine_->Allocate("test", lease, 4096)->block;
  BlockOperands blocks;
  blocks.activations = {block, 0, 1024};
  blocks.activation_scales = {block, 1024, 1024};
  blocks.output = {block, 2048, 2048};
  const BlockOperands good = blocks;
  const auto run = [&] {
    return Run({.client = "test", .signature = &signature_, .operands = {}, .blocks = &blocks});
  };
  EXPECT_TRUE(run().ok()) << run();
  blocks.output.offset = 1024;
  const std::optional<ErrorDetail> overlap = DetailOf(run());
  ASSERT_TRUE(overlap.has_value());
  EXPECT_EQ(overlap->reason, Reason::kOperandsOverlap);
  EXPECT_EQ(overlap->violations[0].field, "block_operands.output");
  EXPECT_EQ(overlap->violations[0].limit, "no part of block_operands.activation_scales");
  blocks = good;
  blocks.output.offset = 2049;
  blocks.output.bytes = 1024;
  Expect(run(), Reason::kFieldOutOfRange, "block_operands.output.offset", "2049",
         absl::StrCat("a multiple of ", kOperandAlignment));
  blocks = good;
  blocks.activations.bytes = 1;
  const absl::Status small = run();
  ASSERT_TRUE(DetailOf(small).has_value()) << small;
  EXPECT_EQ(DetailOf(small)->reason, Reason::kSizeMismatch);
  EXPECT_EQ(DetailOf(small)->violations[0].field, "block_operands.activations.bytes");
  blocks = good;
  blocks.row_scale = good.activations;
  Expect(run(), Reason::kFieldConflict, "block_operands.row_scale_block");
  blocks = good;
  blocks.output.block = "nonsense";
  Expect(run(), Reason::kFieldMalformed, "block_operands.output.block", "nonsense",
         "a name this daemon gave out");
  ASSERT_TRUE(engine_->Free("test", block).ok());
  blocks = good;
  Expect(run(), Reason::kStaleHandle, "block_operands.activations.block");
}

TEST_F(ErrorReasonsTest, OfLeasesAndPlans) {
  const std::string lease = engine_->Attach("test", "")->lease;
  Expect(engine_->Attach("other", lease).status(), Reason::kNotYours, "lease");
  ASSERT_TRUE(engine_->Attach("other", "").ok());
  Expect(engine_->Attach("other", "").status(), Reason::kTableFull);
  ASSERT_TRUE(engine_->EndLease("test", lease).ok());
  Expect(engine_->Attach("test", lease).status(), Reason::kStaleHandle, "lease");
  const std::string plan = engine_->Prepare("test", signature_)->handle;
  Expect(engine_->Release("other", plan), Reason::kNotYours, "plan");
  ASSERT_TRUE(weights().Drop("w").ok());
  const SampleRequest other({{5, 24, 96}, {3, 24, 96}}, {});
  ASSERT_TRUE(other.Register(weights(), "w").ok());
  Expect(Run({.client = "test", .plan = plan, .operands = operands_}), Reason::kShapesDiffer,
         "weights", weights().Resolve("w").value()->reference());
  ASSERT_TRUE(engine_->Release("test", plan).ok());
  Expect(engine_->Release("test", plan), Reason::kStaleHandle, "plan");
}

TEST_F(ErrorReasonsTest, OfWeights) {
  WeightsSpec spec = sample_.Spec("v");
  spec.groups = {{4, 64}, {0, 33}};
  const absl::Status dims = weights().Begin(spec).status();
  Expect(dims, Reason::kFieldOutOfRange, "groups[1].n", "0", "at least 1", 1);
  ASSERT_EQ(DetailOf(dims)->violations.size(), 2u);
  EXPECT_EQ(DetailOf(dims)->violations[1].field, "groups[1].k");
  EXPECT_EQ(DetailOf(dims)->violations[1].limit, "a positive multiple of 32");
  const int64_t version = *weights().Begin(sample_.Spec("v"));
  Expect(weights().Seal("v", version).status(), Reason::kWeightsIncomplete);
  ASSERT_TRUE(Write("v", version, WeightsOperand::kCodes, 0, "01234567").ok());
  Expect(Write("v", version, WeightsOperand::kCodes, 4, "4567"), Reason::kOperandsOverlap,
         "chunk.offset", "4", "bytes not written before");
  ASSERT_TRUE(Write("v", version, WeightsOperand::kCodes, 100, "0").ok());
  Expect(Write("v", version, WeightsOperand::kCodes, 200, "0"), Reason::kTooManyGaps);
  Expect(Write("v", version, WeightsOperand::kScales, 0, "\xFF"), Reason::kIllegalScale,
         "chunk.data", "0xff", "0x00 to 0x7E", 0);
  const int64_t sealed = weights().Resolve("w").value()->version();
  Expect(Write("w", sealed, WeightsOperand::kCodes, 0, "0"), Reason::kWeightsSealed);
  const SampleRequest other({{5, 24, 96}, {3, 24, 96}}, {});
  Expect(other.Register(weights(), "w"), Reason::kShapesDiffer, "name", "w",
         absl::StrCat("the shapes of version ", sealed));
  ASSERT_TRUE(weights().Begin(sample_.Spec("last")).ok());
  Expect(weights().Begin(sample_.Spec("x")).status(), Reason::kTableFull);
  ASSERT_TRUE(weights().Drop("v").ok());
  ASSERT_TRUE(weights().Drop("last").ok());
  WeightsSpec large = sample_.Spec("large");
  large.groups = {{1024, 55 << 10}};  // half of the memory and a little more
  large.groups.push_back(large.groups[0]);
  large.groups[1].n = 200;
  ASSERT_TRUE(weights().Begin(large).ok());
  Expect(weights().Begin(large).status(), Reason::kDeviceMemory);
}

TEST_F(ErrorReasonsTest, OfTime) {
  ExecuteRequest late{.client = "test", .signature = &signature_, .operands = operands_};
  late.deadline = 1;
  Expect(Run(late), Reason::kDeadline);
  engine_->Close();
  Expect(Run(), Reason::kDraining);
}

TEST_F(ErrorReasonsTest, ManyBadGroupsAreToldInPart) {
  const SampleRequest many(std::vector<GroupShape>(1000, {1, 8, 32}), {});
  ASSERT_TRUE(many.Register(weights(), "many").ok());
  signature_ = many.Signature("many");
  signature_.m.assign(1000, -1);
  const std::optional<ErrorDetail> detail = DetailOf(Run());
  ASSERT_TRUE(detail.has_value());
  ASSERT_EQ(detail->violations.size(), GroupErrors::kMost);
  EXPECT_EQ(detail->violations[15].field, "signature.exact.m[15]");
  EXPECT_EQ(detail->omitted, 1000 - int64_t{GroupErrors::kMost});
}

}  // namespace
}  // namespace tetrad
