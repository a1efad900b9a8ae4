// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Blocks: operands in them give the same bits as inline ones, and whatever
// names them wrongly is refused.
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/str_cat.h"

#include "tests/e2e/memory_client.h"

namespace tetrad::e2e {
namespace {

using ::testing::HasSubstr;

class MemoryServiceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { daemon_ = std::make_unique<Daemon>(); }
  static void TearDownTestSuite() { daemon_.reset(); }
  static std::unique_ptr<Daemon> daemon_;
  const Stubs stubs_{*daemon_};
  const std::unique_ptr<Client> client_ = ConnectClient(daemon_->socket());
  std::unique_ptr<Attachment> attachment_ = AttachTo(*client_);
  const std::string lease_ = attachment_->lease();

  std::string Allocate(int64_t bytes) {
    const auto block = client_->Allocate(lease_, bytes);
    EXPECT_TRUE(block.ok()) << block.status();
    return block.ok() ? block->block() : "";
  }
};
std::unique_ptr<Daemon> MemoryServiceTest::daemon_;

void ExpectRefused(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST_F(MemoryServiceTest, SameBitsAsInline) {
  const GroupShape kSeparate[] = {
      {5, 24, 96}, {0, 8, 32}, {130, 40, 160}, {1, 129, 64}, {0, 1, 32}};
  const auto kStacked = GroupsOf(72, 96, 3, 0, 131, 1, 0);
  uint64_t seed = 200;
  for (const bool stacked : {false, true}) {
    for (int a = 0; a < 3; ++a) {
      for (const bool row_scales : {false, true}) {
        SampleOptions options;
        options.form = stacked ? GroupForm::kStacked : GroupForm::kSeparate;
        options.types.a_type = static_cast<ActivationType>(a);
        options.types.c_type = static_cast<OutputType>(a);
        options.types.a_scale_layout = row_scales ? ScaleLayout::kBlocked : ScaleLayout::kLinear;
        options.row_scales = row_scales;
        options.seed = ++seed;
        SCOPED_TRACE(::testing::Message()
                     << "stacked=" << stacked << " a=" << a << " row_scales=" << row_scales);
        const Operands operands(
            stacked ? std::span<const GroupShape>(kStacked) : std::span(kSeparate), options);
        const std::string name = absl::StrCat("blocks/", seed);
        Register(stubs_, operands, name);
        PlacedOperands placed(*client_, operands, name, lease_);
        for (int times = 0; times < 3; ++times) {
          placed.Clear(*client_);
          const auto response = client_->Execute(placed.request);
          ASSERT_TRUE(response.ok()) << response.status();
          EXPECT_EQ(response->output(), "");
          EXPECT_GT(response->timings().device_us(), 0);
          placed.Verify(*client_);
        }
        const auto inline_response = client_->Execute(RequestOf(operands, name));
        ASSERT_TRUE(inline_response.ok()) << inline_response.status();
        EXPECT_EQ(placed.Output(*client_), inline_response->output());
        EXPECT_TRUE(client_->Free(placed.block).ok());
      }
    }
  }
}

// Row scales sent along, operands over several blocks, a range inside a block.
TEST_F(MemoryServiceTest, OperandsInSeveralBlocksAndPartlyInline) {
  const GroupShape kShapes[] = {{7, 24, 64}, {3, 16, 96}};
  SampleOptions options;
  options.row_scales = true;
  options.seed = 300;
  const Operands operands(kShapes, options);
  Register(stubs_, operands, "several");
  PlacedOperands placed(*client_, operands, "several", lease_);
  v1::BlockOperands& blocks = *placed.request.mutable_block_operands();
  blocks.clear_row_scale_block();
  for (const GroupProblem& group : operands.groups()) {
    blocks.mutable_row_scales_inline()->mutable_row_scale()->Add(group.row_scale,
                                                                 group.row_scale + group.m);
  }
  const v1::BlockRange from = blocks.activation_scales();
  std::vector<uint8_t> scales(static_cast<size_t>(from.bytes()));
  ASSERT_TRUE(client_->Read(from.block(), from.offset(), scales).ok());
  const std::string other = Allocate(from.bytes() + 4096);
  ASSERT_TRUE(client_->Write(other, 48, scales).ok());
  blocks.mutable_activation_scales()->set_block(other);
  blocks.mutable_activation_scales()->set_offset(48);
  const auto response = client_->Execute(placed.request);
  ASSERT_TRUE(response.ok()) << response.status();
  placed.Verify(*client_);
}

// Device-side M with the counts in a block, too.
TEST_F(MemoryServiceTest, CountsComeFromABlock) {
  constexpr int32_t kRows = 40;
  const auto kShapes = GroupsOf(56, 64, kRows, kRows, kRows);
  SampleOptions options;
  options.form = GroupForm::kStacked;
  options.seed = 301;
  const Operands operands(kShapes, options);
  Register(stubs_, operands, "block-counts");
  v1::PrepareRequest prepare;
  v1::Signature& signature = *prepare.mutable_signature();
  signature = SignatureOf(operands, "block-counts");
  signature.mutable_capacity()->set_m_source(v1::M_SOURCE_COUNTS);
  signature.mutable_capacity()->set_rows(kRows);
  prepare.set_lease(lease_);
  const auto prepared = client_->Prepare(prepare);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const v1::InlineOperands operand = InlineOf(operands);
  v1::ExecuteRequest request;
  request.set_plan(prepared->plan());
  v1::BlockOperands& blocks = *request.mutable_block_operands();
  const auto place = [&](v1::BlockRange& range, int64_t bytes, std::span<const uint8_t> data) {
    range.set_block(Allocate(bytes));
    range.set_bytes(bytes);
    ASSERT_TRUE(client_->Write(range.block(), 0, data).ok());
  };
  const auto bytes = [](const std::string& text) {
    return std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  place(*blocks.mutable_activations(), prepared->info().activation_block_bytes(),
        bytes(operand.activations()));
  place(*blocks.mutable_activation_scales(), prepared->info().activation_scale_block_bytes(),
        bytes(operand.activation_scales()));
  place(*blocks.mutable_output(), prepared->info().output_block_bytes(), {});
  place(*blocks.mutable_m_values_block(), 12, {});
  const std::string output_block = blocks.output().block();
  const size_t group_bytes = size_t{kRows} * 56 * 2;
  ASSERT_EQ(blocks.output().bytes(), static_cast<int64_t>(3 * group_bytes));

  const int32_t kCounts[][3] = {{5, 0, 3}, {40, 1, 40}, {0, 0, 0}};
  for (const auto& counts : kCounts) {
    const std::vector<uint8_t> pattern(3 * group_bytes, 0xA5);
    ASSERT_TRUE(client_->Write(output_block, 0, pattern).ok());
    ASSERT_TRUE(client_
                    ->Write(blocks.m_values_block().block(), 0,
                            {reinterpret_cast<const uint8_t*>(counts), sizeof(counts)})
                    .ok());
    const auto response = client_->Execute(request);
    ASSERT_TRUE(response.ok()) << response.status();
    std::vector<uint8_t> output(pattern.size());
    ASSERT_TRUE(client_->Read(output_block, 0, output).ok());
    std::vector<GroupProblem> live(operands.groups().begin(), operands.groups().end());
    for (size_t g = 0; g < live.size(); ++g) {
      live[g].m = counts[g];
      live[g].c = output.data() + g * group_bytes;
      // Rows that are not live keep what was in them.
      const std::span dead =
          std::span(output).subspan(g * group_bytes + static_cast<size_t>(counts[g]) * 56 * 2,
                                    static_cast<size_t>(kRows - counts[g]) * 56 * 2);
      EXPECT_EQ(std::ranges::count(dead, 0xA5), static_cast<ptrdiff_t>(dead.size()));
    }
    const Verdict verdict = Verify(operands.types(), live, {});
    EXPECT_TRUE(verdict.pass) << verdict.ToString();
  }
  const int32_t kTooMany[] = {1, 41, 0};
  ASSERT_TRUE(client_
                  ->Write(blocks.m_values_block().block(), 0,
                          {reinterpret_cast<const uint8_t*>(kTooMany), sizeof(kTooMany)})
                  .ok());
  ExpectRefused(client_->Execute(request).status(), absl::StatusCode::kInvalidArgument, "m_values");
}

TEST_F(MemoryServiceTest, RequestsThatNameBlocksWronglyAreRefused) {
  const GroupShape kShapes[] = {{7, 24, 64}, {3, 16, 96}};
  const Operands operands(kShapes, {.seed = 302});
  Register(stubs_, operands, "refusals");
  PlacedOperands placed(*client_, operands, "refusals", lease_);
  ASSERT_TRUE(client_->Execute(placed.request).ok());
  const std::string freed = Allocate(4096);
  ASSERT_TRUE(client_->Free(freed).ok());
  const int64_t block_bytes = placed.block_bytes;
  struct Case {
    const char* what;
    absl::StatusCode code;
    const char* text;
    std::function<void(v1::BlockOperands&)> spoil;
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const Case kCases[] = {
      {"freed", absl::StatusCode::kAborted, "activations",
       [&](v1::BlockOperands& b) { b.mutable_activations()->set_block(freed); }},
      {"malformed", kInvalid, "activations",
       [](v1::BlockOperands& b) { b.mutable_activations()->set_block("block-zz"); }},
      {"a lease is no block", kInvalid, "output",
       [&](v1::BlockOperands& b) { b.mutable_output()->set_block(lease_); }},
      {"a byte short", kInvalid, "activations: bytes=",
       [](v1::BlockOperands& b) {
         b.mutable_activations()->set_bytes(b.activations().bytes() - 1);
       }},
      {"output a byte short", kInvalid, "output: bytes=",
       [](v1::BlockOperands& b) { b.mutable_output()->set_bytes(b.output().bytes() - 1); }},
      {"beyond the end", kInvalid, "activations",
       [&](v1::BlockOperands& b) {
         b.mutable_activations()->set_offset(block_bytes - b.activations().bytes() + 16);
       }},
      {"a byte beyond the end", kInvalid, "output",
       [&](v1::BlockOperands& b) {
         b.mutable_output()->set_bytes(block_bytes - b.output().offset() + 1);
       }},
      {"negative offset", kInvalid, "output",
       [](v1::BlockOperands& b) { b.mutable_output()->set_offset(-16); }},
      {"negative size", kInvalid, "output",
       [](v1::BlockOperands& b) { b.mutable_output()->set_bytes(-1); }},
      {"overflow", kInvalid, "output",
       [](v1::BlockOperands& b) { b.mutable_output()->set_offset(INT64_MAX - 15); }},
      {"misaligned", kInvalid, "must be a multiple of 16",
       [](v1::BlockOperands& b) {
         b.mutable_activations()->set_offset(b.activations().offset() + 8);
       }},
      {"overlap", kInvalid, "overlap",
       [](v1::BlockOperands& b) { b.mutable_output()->set_offset(b.activations().offset()); }},
      {"overlap of 16 bytes", kInvalid, "overlap",
       [](v1::BlockOperands& b) {
         b.mutable_output()->set_offset(
             (b.activation_scales().offset() + b.activation_scales().bytes() - 16) / 16 * 16);
       }},
      {"no scales", kInvalid, "activation_scales",
       [](v1::BlockOperands& b) { b.clear_activation_scales(); }},
      {"counts without device-side M", kInvalid, "m_values",
       [&](v1::BlockOperands& b) { *b.mutable_m_values_block() = b.activations(); }},
      {"row scales without a place", kInvalid, "row_scale",
       [&](v1::BlockOperands& b) { *b.mutable_row_scale_block() = b.activations(); }},
      {"alpha of another number", kInvalid, "alpha",
       [](v1::BlockOperands& b) { b.add_alpha(1.0f); }},
  };
  for (const Case& row : kCases) {
    SCOPED_TRACE(row.what);
    v1::ExecuteRequest request = placed.request;
    row.spoil(*request.mutable_block_operands());
    ExpectRefused(client_->Execute(request).status(), row.code, row.text);
  }
  // All of it was refused before anything was written.
  placed.Verify(*client_);
}

TEST_F(MemoryServiceTest, NamesOfOtherClientsAreRefused) {
  const auto other = ConnectClient(daemon_->tcp());  // another identity
  const auto others = AttachTo(*other);
  const std::string block = Allocate(4096);
  constexpr auto kDenied = absl::StatusCode::kPermissionDenied;
  std::vector<uint8_t> bytes(16);
  ExpectRefused(other->Allocate(lease_, 16).status(), kDenied, "lease");
  ExpectRefused(other->Detach(lease_), kDenied, "lease");
  ExpectRefused(other->ListBlocks(lease_).status(), kDenied, "lease");
  ExpectRefused(other->Attach(lease_).status(), kDenied, "lease");
  ExpectRefused(other->Free(block), kDenied, "block");
  ExpectRefused(other->Read(block, 0, bytes), kDenied, "block");
  ExpectRefused(other->Write(block, 0, bytes), kDenied, "block");
  const GroupShape kShapes[] = {{7, 24, 64}};
  const Operands operands(kShapes, {.seed = 303});
  Register(stubs_, operands, "others");
  PlacedOperands placed(*other, operands, "others", others->lease());
  ASSERT_TRUE(other->Execute(placed.request).ok());
  placed.request.mutable_block_operands()->mutable_activations()->set_block(block);
  ExpectRefused(other->Execute(placed.request).status(), kDenied, "block");
  v1::PrepareRequest prepare;
  *prepare.mutable_signature() = SignatureOf(operands, "others");
  prepare.set_lease(lease_);
  ExpectRefused(other->Prepare(prepare).status(), kDenied, "lease");
}

TEST_F(MemoryServiceTest, NothingWorksWithoutALeaseThatLives) {
  constexpr auto kAborted = absl::StatusCode::kAborted;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const GroupShape kShapes[] = {{7, 24, 64}};
  const Operands operands(kShapes, {.seed = 304});
  Register(stubs_, operands, "ended");
  PlacedOperands placed(*client_, operands, "ended", lease_);
  ASSERT_TRUE(client_->Execute(placed.request).ok());
  ASSERT_TRUE(client_->Detach(lease_).ok());
  ExpectRefused(client_->Execute(placed.request).status(), kAborted, "plan");
  ExpectRefused(client_->Allocate(lease_, 16).status(), kAborted, "lease");
  ExpectRefused(client_->ListBlocks(lease_).status(), kAborted, "lease");
  ExpectRefused(client_->Detach(lease_), kAborted, "lease");
  ExpectRefused(client_->Free(placed.block), kAborted, "block");
  v1::PrepareRequest prepare;
  *prepare.mutable_signature() = SignatureOf(operands, "ended");
  prepare.set_lease(lease_);
  ExpectRefused(client_->Prepare(prepare).status(), kAborted, "lease");
  ExpectRefused(client_->Allocate("", 16).status(), kInvalid, "lease: must be set");
  ExpectRefused(client_->Allocate("lease-1", 16).status(), kInvalid, "lease");
  ExpectRefused(client_->Attach("lease-1").status(), kInvalid, "lease");
  ExpectRefused(client_->Free("a b"), kInvalid, "block: 'a b'");
}

TEST_F(MemoryServiceTest, WritesAndReadsKeepToTheBlock) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr int64_t kBytes = (3 << 20) + 77;
  const std::string block = Allocate(kBytes);
  std::vector<uint8_t> bytes(kBytes), out(kBytes, 1);
  ASSERT_TRUE(client_->Read(block, 0, out).ok());
  EXPECT_EQ(out, bytes) << "a new block is zero";
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
  ASSERT_TRUE(client_->Write(block, 0, bytes).ok());
  ASSERT_TRUE(client_->Read(block, 0, out).ok());
  EXPECT_EQ(out, bytes);
  std::vector<uint8_t> part(100);
  ASSERT_TRUE(client_->Read(block, kBytes - 100, part).ok());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), bytes.end() - 100));
  ExpectRefused(client_->Read(block, kBytes - 99, part), kInvalid, "bytes: 100");
  ExpectRefused(client_->Read(block, -1, part), kInvalid, "offset: -1");
  ExpectRefused(client_->Read(block, kBytes + 1, part), kInvalid, "offset: ");
  ExpectRefused(client_->Write(block, kBytes - 99, part), kInvalid, "data: 100 bytes");
  ExpectRefused(client_->Write(block, INT64_MAX, part), kInvalid, "offset: ");
  ExpectRefused(client_->Write(block, -1, part), kInvalid, "offset: -1");
  ExpectRefused(client_->Allocate(lease_, 0).status(), kInvalid, "bytes");
  ExpectRefused(client_->Allocate(lease_, -5).status(), kInvalid, "bytes");
  // What is read with 0 bytes is the rest.
  v1::ReadRequest rest;
  rest.set_block(block);
  rest.set_offset(kBytes - 10);
  grpc::ClientContext context;
  const auto reader = stubs_.memory->Read(&context, rest);
  v1::ReadResponse piece;
  ASSERT_TRUE(reader->Read(&piece));
  EXPECT_EQ(piece.data().size(), 10u);
  EXPECT_FALSE(reader->Read(&piece));
  EXPECT_TRUE(reader->Finish().ok());
  // Memory that is used again is zero again.
  ASSERT_TRUE(client_->Free(block).ok());
  const std::string again = Allocate(kBytes);
  ASSERT_TRUE(client_->Read(again, 0, out).ok());
  EXPECT_EQ(std::ranges::count(out, 0), kBytes);
}

TEST_F(MemoryServiceTest, WriteStreamsThatSayItWrongAreRefused) {
  const std::string block = Allocate(4096);
  const auto outcome = [&](const std::vector<v1::WriteRequest>& messages) {
    grpc::ClientContext context;
    v1::WriteResponse response;
    const auto writer = stubs_.memory->Write(&context, &response);
    for (const auto& message : messages) writer->Write(message);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    return absl::StrCat(static_cast<int>(status.error_code()), " ", status.error_message(), " ",
                        response.bytes());
  };
  v1::WriteRequest first, later;
  first.set_block(block);
  first.set_offset(10);
  first.set_data("abc");
  later.set_data("defg");
  EXPECT_EQ(outcome({first, later, later}), "0  11");
  EXPECT_THAT(outcome({}), HasSubstr("3 the stream ended before its first message"));
  EXPECT_THAT(outcome({later}), HasSubstr("3 block: must be set"));
  EXPECT_THAT(outcome({first, first}), HasSubstr("3 block and offset: only the first"));
}

TEST_F(MemoryServiceTest, ListTellsTheBlocksOfALeaseOldestFirst) {
  EXPECT_EQ(client_->ListBlocks(lease_)->blocks_size(), 0);
  std::vector<std::string> names;
  for (const int64_t bytes : {100, 5, 70000}) names.push_back(Allocate(bytes));
  ASSERT_TRUE(client_->Free(names[1]).ok());
  const auto list = client_->ListBlocks(lease_);
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->blocks_size(), 2);
  EXPECT_EQ(list->blocks(0).block(), names[0]);
  EXPECT_EQ(list->blocks(1).block(), names[2]);
  EXPECT_EQ(list->blocks(1).bytes(), 70000);
  EXPECT_EQ(list->blocks(1).lease(), lease_);
}

TEST(MemoryQuotaTest, BlocksOfAClientAndLeasesAreBounded) {
  const Daemon daemon({"--client-block-bytes", "1000000", "--max-leases", "2"});
  const auto client = ConnectClient(daemon.socket());
  const auto attachment = AttachTo(*client);
  const auto first = client->Allocate(attachment->lease(), 600000);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = AttachTo(*client);
  constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
  ExpectRefused(client->Allocate(second->lease(), 600000).status(), kExhausted,
                "client_block_bytes");
  ExpectRefused(client->Attach().status(), kExhausted, "max_leases");
  ASSERT_TRUE(client->Free(first->block()).ok());
  EXPECT_TRUE(Eventually([&] { return client->Allocate(second->lease(), 600000).ok(); }));
  ASSERT_TRUE(client->Detach(attachment->lease()).ok());
  EXPECT_TRUE(client->Attach().ok());
}

TEST(MemoryRestartTest, NamesOfAnEarlierDaemonAreStale) {
  Daemon daemon;
  std::string lease, block;
  {
    const auto client = ConnectClient(daemon.socket());
    const auto attachment = AttachTo(*client);
    lease = attachment->lease();
    block = client->Allocate(lease, 16)->block();
    daemon.Signal(SIGKILL);
    ASSERT_EQ(daemon.Wait(absl::Seconds(10)), 128 + SIGKILL);
    EXPECT_TRUE(Eventually([&] { return attachment->lost().stop_requested(); }));
    EXPECT_EQ(attachment->status().code(), absl::StatusCode::kUnavailable);
  }
  daemon.Restart();
  const auto client = ConnectClient(daemon.socket());
  ExpectRefused(client->Attach(lease).status(), absl::StatusCode::kAborted, "lease");
  ExpectRefused(client->Free(block), absl::StatusCode::kAborted, "block");
}

// The name ends at once, the memory with the launch.
TEST(MemoryInUseTest, FreedBlocksServeTheLaunchThatUsesThem) {
  const Daemon daemon({"--threads", "1"});
  const Stubs stubs(daemon);
  const auto client = ConnectClient(daemon.socket());
  const auto attachment = AttachTo(*client);
  const v1::ExecuteRequest slow = RegisterSlow(stubs, "slow");
  const Operands operands(kShapeT1, {.seed = 305});
  Register(stubs, operands, "quick");
  v1::PrepareRequest prepare;
  *prepare.mutable_signature() = slow.signature();
  const auto prepared = client->Prepare(prepare);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  const std::string idle = Held(daemon, *client);
  v1::ExecuteRequest request;
  request.set_plan(prepared->plan());
  v1::BlockOperands& blocks = *request.mutable_block_operands();
  const auto place = [&](v1::BlockRange& range, int64_t bytes, const std::string& data) {
    range.set_block(client->Allocate(attachment->lease(), bytes)->block());
    range.set_bytes(bytes);
    const std::span span(reinterpret_cast<const uint8_t*>(data.data()), data.size());
    ASSERT_TRUE(client->Write(range.block(), 0, span).ok());
  };
  place(*blocks.mutable_activations(), prepared->info().activation_block_bytes(),
        slow.inline_operands().activations());
  place(*blocks.mutable_activation_scales(), prepared->info().activation_scale_block_bytes(),
        slow.inline_operands().activation_scales());
  place(*blocks.mutable_output(), prepared->info().output_block_bytes(), "");
  absl::Status status = absl::UnknownError("none");
  std::jthread caller([&] { status = client->Execute(request).status(); });
  ASSERT_TRUE(Eventually([&] { return client->GetStatus()->in_flight() > 0; }));
  for (const v1::BlockRange* range :
       {&blocks.activations(), &blocks.activation_scales(), &blocks.output()}) {
    EXPECT_TRUE(client->Free(range->block()).ok());
    EXPECT_EQ(client->Free(range->block()).code(), absl::StatusCode::kAborted);
  }
  EXPECT_EQ(client->GetStatus()->blocks(), 0);
  ExpectRefused(client->Execute(request).status(), absl::StatusCode::kAborted, "activations");
  // Others work meanwhile, on memory that is not theirs.
  ExecuteAndVerify(stubs, operands, RequestOf(operands, "quick"));
  caller.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(Eventually([&] { return Held(daemon, *client) == idle; })) << Held(daemon, *client);
}

}  // namespace
}  // namespace tetrad::e2e
