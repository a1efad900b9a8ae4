// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Results over the wire: every element has the reference's bits.
#include <set>

#include <gtest/gtest.h>

#include "grpcpp/client_context.h"

#include "tests/e2e/gemm_client.h"

namespace tetrad::e2e {
namespace {

class ExecuteTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { daemon_ = std::make_unique<Daemon>(); }
  static void TearDownTestSuite() { daemon_.reset(); }
  static std::unique_ptr<Daemon> daemon_;
  const Stubs stubs_{*daemon_};
};
std::unique_ptr<Daemon> ExecuteTest::daemon_;

TEST_F(ExecuteTest, ContestShapesInEveryType) {
  uint64_t seed = 0;
  for (const NamedShape& shape : {kTestShapes[0], kTestShapes[1], kTestShapes[3]}) {
    for (int a = 0; a < 3; ++a) {
      for (int c = 0; c < 3; ++c) {
        SampleOptions options;
        options.types.a_type = static_cast<ActivationType>(a);
        options.types.c_type = static_cast<OutputType>(c);
        options.kind = DataKind::kContest;
        options.seed = ++seed;
        SCOPED_TRACE(std::string(shape.name) + " a=" + std::to_string(a) +
                     " c=" + std::to_string(c));
        const Operands operands(shape.groups, options);
        const std::string weights = Register(stubs_, operands, std::string(shape.name) + "/w");
        ExecuteAndVerify(stubs_, operands, RequestOf(operands, weights));
      }
    }
  }
}

TEST_F(ExecuteTest, LayoutsFormsRowScalesAndEmptyGroups) {
  const GroupShape kSeparate[] = {
      {5, 24, 96}, {0, 8, 32}, {130, 40, 160}, {1, 129, 64}, {0, 1, 32}};
  const auto kStacked = GroupsOf(72, 96, 3, 0, 131, 1, 0);
  uint64_t seed = 100;
  for (const bool stacked : {false, true}) {
    for (const bool blocked : {false, true}) {
      for (const bool column_major : {false, true}) {
        for (const bool row_scales : {false, true}) {
          SampleOptions options;
          options.form = stacked ? GroupForm::kStacked : GroupForm::kSeparate;
          if (blocked) {
            options.types.a_scale_layout = ScaleLayout::kBlocked;
            options.types.b_scale_layout = ScaleLayout::kBlocked;
          }
          if (column_major) options.types.c_layout = OutputLayout::kColumnMajor;
          options.types.c_type = OutputType::kFp32;
          options.row_scales = row_scales;
          options.seed = ++seed;
          SCOPED_TRACE(::testing::Message()
                       << "stacked=" << stacked << " blocked=" << blocked
                       << " column_major=" << column_major << " row_scales=" << row_scales);
          const std::span<const GroupShape> shapes =
              stacked ? std::span<const GroupShape>(kStacked) : std::span(kSeparate);
          const Operands operands(shapes, options);
          const std::string name = "layouts/" + std::to_string(seed);
          Register(stubs_, operands, name);
          ExecuteAndVerify(stubs_, operands, RequestOf(operands, name));
        }
      }
    }
  }
}

TEST_F(ExecuteTest, OneHandleManyTimesAndOnTcp) {
  const GroupShape kShapes[] = {{33, 48, 64}, {2, 16, 96}};  // of no other test: not cached
  const Operands operands(kShapes, {.seed = 7});
  Register(stubs_, operands, "handle");
  const Stubs tcp(Connect(daemon_->tcp()));
  for (const Stubs* stubs : {&stubs_, &tcp}) {
    v1::PrepareRequest prepare;
    *prepare.mutable_signature() = SignatureOf(operands, "handle");
    v1::PrepareResponse prepared;
    grpc::ClientContext context;
    const grpc::Status status = stubs->gemm->Prepare(&context, prepare, &prepared);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(prepared.cached(), stubs == &tcp);
    EXPECT_EQ(prepared.info().groups(), 2);
    EXPECT_GT(prepared.info().tiles(), 0);
    EXPECT_GE(prepared.info().balance(), 1.0);
    EXPECT_FALSE(prepared.info().explanation().empty());
    v1::ExecuteRequest request;
    request.set_plan(prepared.plan());
    *request.mutable_inline_operands() = InlineOf(operands);
    for (int i = 0; i < 20; ++i) ExecuteAndVerify(*stubs, operands, request);
  }
}

TEST_F(ExecuteTest, TimingsAndFloorAreTold) {
  const Operands operands(kShapeT1, {.seed = 8});
  const std::string weights = Register(stubs_, operands, "timings");
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  ASSERT_TRUE(stubs_.gemm->Execute(&context, RequestOf(operands, "timings"), &response).ok());
  EXPECT_EQ(response.weights(), weights);
  EXPECT_FALSE(response.kernel().empty());
  EXPECT_GT(response.floor_us(), 0);
  EXPECT_GT(response.timings().device_us(), 0);
  EXPECT_GE(response.timings().total_us(), response.timings().device_us());
  EXPECT_DOUBLE_EQ(response.timings().share(),
                   response.floor_us() / response.timings().device_us());
}

// Device-side M: groups of `rows` rows each, of which the first m[g] are live.
TEST_F(ExecuteTest, CountsAreReadAtEachLaunch) {
  constexpr int32_t kRows = 40;
  const auto kShapes = GroupsOf(56, 64, kRows, kRows, kRows, kRows);
  SampleOptions options;
  options.form = GroupForm::kStacked;
  options.types.a_scale_layout = ScaleLayout::kBlocked;
  options.seed = 9;
  const Operands operands(kShapes, options);
  Register(stubs_, operands, "counts");
  v1::ExecuteRequest request = RequestOf(operands, "counts");
  v1::Capacity& capacity = *request.mutable_signature()->mutable_capacity();
  capacity.set_m_source(v1::M_SOURCE_COUNTS);
  capacity.set_rows(kRows);
  const int32_t kCounts[][4] = {{0, 5, 0, 3}, {40, 0, 1, 40}, {0, 0, 0, 0}};
  for (const auto& counts : kCounts) {
    request.mutable_inline_operands()->mutable_m_values()->Assign(counts, counts + 4);
    grpc::ClientContext context;
    v1::ExecuteResponse response;
    const grpc::Status status = stubs_.gemm->Execute(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_EQ(response.output().size(), 4u * kRows * 56 * 2);
    std::vector<GroupProblem> live(operands.groups().begin(), operands.groups().end());
    for (size_t g = 0; g < live.size(); ++g) {
      live[g].m = counts[g];
      live[g].c = response.mutable_output()->data() + g * kRows * 56 * 2;
      // Rows beyond the live ones are zero, whatever an earlier request left.
      const std::string dead =
          response.output().substr((g * kRows + static_cast<size_t>(counts[g])) * 56 * 2,
                                   static_cast<size_t>(kRows - counts[g]) * 56 * 2);
      EXPECT_EQ(dead.find_first_not_of('\0'), std::string::npos) << "group " << g;
    }
    const Verdict verdict = Verify(operands.types(), live, {});
    EXPECT_TRUE(verdict.pass) << verdict.ToString();
  }
}

TEST_F(ExecuteTest, OffsetsAreReadAtEachLaunch) {
  const auto kShapes = GroupsOf(56, 64, 7, 0, 20, 5);
  SampleOptions options;
  options.form = GroupForm::kStacked;
  options.row_scales = true;
  options.seed = 10;
  const Operands operands(kShapes, options);
  Register(stubs_, operands, "offsets");
  v1::ExecuteRequest request = RequestOf(operands, "offsets");
  v1::Capacity& capacity = *request.mutable_signature()->mutable_capacity();
  capacity.set_m_source(v1::M_SOURCE_OFFSETS);
  capacity.set_rows(40);
  v1::InlineOperands& operand = *request.mutable_inline_operands();
  operand.mutable_activations()->resize(40 * 32, '\x7F');
  operand.mutable_activation_scales()->resize(40 * 4, '\x7F');
  operand.mutable_row_scale()->Resize(40, 0.0f);
  for (const int32_t offset : {0, 7, 7, 27, 32}) operand.add_m_values(offset);
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  const grpc::Status status = stubs_.gemm->Execute(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  ASSERT_EQ(response.output().size(), 40u * 56 * 2);
  EXPECT_EQ(response.output().find_first_not_of('\0', 32 * 56 * 2), std::string::npos);
  const Verdict verdict = Judge(operands, response.output().substr(0, 32 * 56 * 2));
  EXPECT_TRUE(verdict.pass) << verdict.ToString();
}

// A plan that was evicted is built again by the next request that names it,
// on a thread that may, whichever thread took the request.
TEST(EvictedPlanTest, IsBuiltAgainWhetherThreadsSpinOrNot) {
  for (const char* spin : {"0", "100000"}) {
    SCOPED_TRACE(spin);
    const Daemon daemon({"--plan-capacity", "1", "--spin-microseconds", spin});
    const Stubs stubs(daemon);
    std::vector<Operands> operands;
    std::vector<v1::ExecuteRequest> requests;
    for (const int32_t rows : {3, 4}) {
      const GroupShape shape[] = {{rows, 24, 96}};
      operands.emplace_back(shape, SampleOptions{.seed = static_cast<uint64_t>(rows)});
      const std::string name = "evicted/" + std::to_string(rows);
      Register(stubs, operands.back(), name);
      v1::PrepareRequest prepare;
      *prepare.mutable_signature() = SignatureOf(operands.back(), name);
      v1::PrepareResponse prepared;
      grpc::ClientContext context;
      ASSERT_TRUE(stubs.gemm->Prepare(&context, prepare, &prepared).ok());
      v1::ExecuteRequest& request = requests.emplace_back();
      request.set_plan(prepared.plan());
      *request.mutable_inline_operands() = InlineOf(operands.back());
    }
    for (int i = 0; i < 20; ++i) {
      ExecuteAndVerify(stubs, operands[i % 3 == 0], requests[i % 3 == 0]);
    }
  }
}

}  // namespace
}  // namespace tetrad::e2e
