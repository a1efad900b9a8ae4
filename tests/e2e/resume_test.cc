// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Uploads and writes over connections that break: what arrived is kept, what is
// missing is told, nobody else sees it, and nothing is left in the end.
#include <algorithm>
#include <stop_token>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "grpcpp/client_context.h"

#include "kernels/random.h"
#include "tests/e2e/memory_client.h"
#include "tests/e2e/proxy.h"

namespace tetrad::e2e {
namespace {

using ::testing::HasSubstr;

// Sums are exact and the output has all their bits, so that any byte of B that is
// not what was sent changes it.
Operands SampleOf(int n, uint64_t seed) {
  const GroupShape shapes[] = {{2, n, 2048}};
  return Operands(
      shapes, {.types = {.c_type = OutputType::kFp32}, .kind = DataKind::kContest, .seed = seed});
}

struct UploadParts {
  v1::UploadHeader header;
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
  int64_t bytes() const { return static_cast<int64_t>(codes.size() + scales.size()); }
};

UploadParts PartsOf(const Operands& operands, const std::string& name) {
  UploadParts parts;
  for (const v1::UploadRequest& message : UploadMessagesOf(operands, name)) {
    if (message.has_header()) parts.header = message.header();
    const std::string& data = message.chunk().data();
    auto& to = message.chunk().operand() == v1::WEIGHTS_OPERAND_CODES ? parts.codes : parts.scales;
    to.insert(to.end(), data.begin(), data.end());
  }
  return parts;
}

class ResumeTest : public ::testing::Test {
 protected:
  explicit ResumeTest(const std::vector<std::string>& flags = {"--threads", "1"})
      : daemon_(flags), stubs_(daemon_) {}

  grpc::Status Get(const Stubs& stubs, const std::string& name, const std::string& key,
                   v1::GetUploadResponse* response) {
    grpc::ClientContext context;
    v1::GetUploadRequest request;
    request.set_name(name);
    request.set_upload_key(key);
    response->Clear();
    return stubs.weights->GetUpload(&context, request, response);
  }
  int Versions() {
    grpc::ClientContext context;
    v1::ListWeightsResponse response;
    EXPECT_TRUE(stubs_.weights->List(&context, {}, &response).ok());
    return response.weights_size();
  }
  // Sends header and half of the codes with a key, then breaks off.
  UploadMessages BreakOff(const Operands& operands, const std::string& name) {
    UploadMessages messages = UploadMessagesOf(operands, name);
    messages[0].mutable_header()->set_upload_key("key");
    v1::UploadResponse response;
    grpc::ClientContext context;
    const auto writer = stubs_.weights->Upload(&context, &response);
    for (size_t i = 0; i < messages.size() / 2; ++i) EXPECT_TRUE(writer->Write(messages[i]));
    v1::GetUploadResponse kept;
    EXPECT_TRUE(Eventually([&] { return Get(stubs_, name, "key", &kept).ok(); }));
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
    return messages;
  }

  Daemon daemon_;
  const Stubs stubs_;
  const Operands small_ = SampleOf(256, 1);
};

class ResumeOverTest : public ResumeTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(UnixAndTcp, ResumeOverTest, ::testing::Bool());

TEST_P(ResumeOverTest, AnUploadOf64MebibytesArrivesThroughTwentyCuts) {
  const bool tcp = GetParam();
  const Operands operands = SampleOf(65536, 2);
  const UploadParts parts = PartsOf(operands, "cut");
  ASSERT_GE(parts.bytes(), 64 << 20);
  Proxy proxy(tcp ? daemon_.tcp() : daemon_.socket(), tcp ? "" : daemon_.folder() + "/proxy.sock");
  Random random(3);
  for (int i = 0; i < 20; ++i) proxy.CutAfter(1000 + random.Below(5 << 20));
  const auto client = ConnectClient(proxy.address());
  std::vector<int64_t> steps;
  const auto info =
      client->Upload(parts.header, parts.codes, parts.scales, [&](int64_t done, int64_t total) {
        EXPECT_EQ(total, parts.bytes());
        steps.push_back(done);
      });
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(proxy.cuts(), 20);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  EXPECT_EQ(steps.back(), parts.bytes());
  EXPECT_TRUE(info->sealed());
  EXPECT_EQ(Versions(), 1) << "one upload, not one per connection";
  ExecuteAndVerify(stubs_, operands, RequestOf(operands, "cut"));
}

// What is said to have arrived is sent again spoilt: it must not be looked at, and the
// result must be right.
TEST_P(ResumeOverTest, RangesAreTrueAtEachCut) {
  const bool tcp = GetParam();
  const Operands operands = SampleOf(4096, 4);
  const UploadParts parts = PartsOf(operands, "ranges");
  v1::UploadHeader header = parts.header;
  header.set_upload_key("ranges:1");
  const Stubs direct(Connect(tcp ? daemon_.tcp() : daemon_.socket()));
  Proxy proxy(tcp ? daemon_.tcp() : daemon_.socket(), tcp ? "" : daemon_.folder() + "/proxy.sock");
  Random random(5);
  for (int i = 0; i < 10; ++i) proxy.CutAfter(100'000 + random.Below(1 << 20));
  std::vector<bool> arrived(parts.codes.size(), false);
  bool scales_arrived = false;
  grpc::Status status;
  int attempts = 0;
  do {
    ASSERT_LT(++attempts, 100);
    std::vector<uint8_t> codes = parts.codes;
    for (size_t i = 0; i < codes.size(); ++i) {
      if (arrived[i]) codes[i] = static_cast<uint8_t>(~codes[i]);
    }
    UploadMessages messages(1);
    *messages[0].mutable_header() = header;
    const auto add = [&](v1::WeightsOperand operand, const std::vector<uint8_t>& bytes) {
      for (size_t at = 0; at < bytes.size(); at += 50'000) {
        v1::UploadChunk& chunk = *messages.emplace_back().mutable_chunk();
        chunk.set_operand(operand);
        chunk.set_offset(static_cast<int64_t>(at));
        chunk.set_data(bytes.data() + at, std::min<size_t>(50'000, bytes.size() - at));
      }
    };
    // In a different order each time, so that there are gaps.
    add(v1::WEIGHTS_OPERAND_CODES, codes);
    for (size_t i = messages.size() - 1; i > 1; --i) {
      std::swap(messages[i], messages[1 + random.Below(static_cast<uint32_t>(i))]);
    }
    if (!scales_arrived) add(v1::WEIGHTS_OPERAND_SCALES, parts.scales);
    const Stubs broken(Connect(proxy.address()));
    v1::UploadResponse response;
    status = Upload(broken, messages, &response);
    v1::GetUploadResponse kept;
    if (status.ok() || !Get(direct, "ranges", "ranges:1", &kept).ok() || kept.has_weights()) {
      continue;
    }
    std::vector<bool> now(arrived.size(), true);
    for (const auto& range : kept.missing_codes()) {
      std::fill_n(now.begin() + range.offset(), range.bytes(), false);
    }
    for (size_t i = 0; i < now.size(); ++i) ASSERT_TRUE(now[i] || !arrived[i]) << i;
    arrived = now;
    scales_arrived = kept.missing_scales().empty();
  } while (!status.ok());
  EXPECT_GE(proxy.cuts(), 5);
  ExecuteAndVerify(stubs_, operands, RequestOf(operands, "ranges"));
}

TEST_F(ResumeTest, TheAnswerIsGivenAgain) {
  UploadMessages messages = UploadMessagesOf(small_, "again");
  messages[0].mutable_header()->set_upload_key("key");
  v1::UploadResponse first, second;
  ASSERT_TRUE(Upload(stubs_, messages, &first).ok());
  messages.resize(1);
  ASSERT_TRUE(Upload(stubs_, messages, &second).ok());
  EXPECT_EQ(second.weights().version(), first.weights().version());
  v1::GetUploadResponse got;
  ASSERT_TRUE(Get(stubs_, "again", "key", &got).ok());
  EXPECT_EQ(got.weights().version(), first.weights().version());
  EXPECT_TRUE(got.weights().sealed());
  EXPECT_EQ(Versions(), 1);
}

TEST_F(ResumeTest, OtherHeadersAndOtherClientsAreApart) {
  UploadMessages messages = BreakOff(small_, "mine");
  v1::GetUploadResponse kept;
  const Stubs other(Connect(daemon_.tcp()));  // another identity
  EXPECT_EQ(Get(other, "mine", "key", &kept).error_code(), grpc::StatusCode::NOT_FOUND);
  UploadMessages different = messages;
  different[0].mutable_header()->set_alpha(0, 3.0f);
  v1::UploadResponse response;
  EXPECT_EQ(Upload(stubs_, different, &response).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  ASSERT_TRUE(Get(stubs_, "mine", "key", &kept).ok());
  const int64_t mine = kept.version();
  ASSERT_TRUE(Upload(other, messages, &response).ok());
  EXPECT_NE(response.weights().version(), mine);
  ASSERT_TRUE(Get(stubs_, "mine", "key", &kept).ok());
  EXPECT_FALSE(kept.has_weights());
  messages[0].mutable_header()->set_upload_key("no blanks");
  EXPECT_EQ(Upload(stubs_, messages, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ResumeTest, ANewerStreamTakesOver) {
  UploadMessages messages = UploadMessagesOf(small_, "taken");
  messages[0].mutable_header()->set_upload_key("key");
  v1::UploadResponse older_response, response;
  grpc::ClientContext context;
  const auto older = stubs_.weights->Upload(&context, &older_response);
  ASSERT_TRUE(older->Write(messages[0]) && older->Write(messages[1]));
  v1::GetUploadResponse kept;
  ASSERT_TRUE(Eventually([&] { return Get(stubs_, "taken", "key", &kept).ok(); }));
  ASSERT_TRUE(Upload(stubs_, messages, &response).ok());
  const grpc::Status status = older->Finish();  // at once, although it sends nothing
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("newer stream"));
  ExecuteAndVerify(stubs_, small_, RequestOf(small_, "taken"));
}

TEST_F(ResumeTest, AFailureThatSendingAgainWouldNotHelpLeavesNothing) {
  UploadMessages messages = UploadMessagesOf(small_, "spoilt");
  messages[0].mutable_header()->set_upload_key("key");
  messages.back().mutable_chunk()->mutable_data()->at(0) = '\x7F';
  v1::UploadResponse response;
  EXPECT_EQ(Upload(stubs_, messages, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Versions(), 0);
}

TEST_F(ResumeTest, AKilledDaemonIsUploadedToAnew) {
  const Operands operands = SampleOf(16384, 7);
  const UploadParts parts = PartsOf(operands, "anew");
  const auto client = ConnectClient(daemon_.socket());
  bool killed = false;
  std::vector<int64_t> steps;
  const auto info =
      client->Upload(parts.header, parts.codes, parts.scales, [&](int64_t done, int64_t total) {
        steps.push_back(done);
        if (killed || done < total / 2) return;
        killed = true;
        daemon_.Signal(SIGKILL);
        EXPECT_TRUE(daemon_.Wait(absl::Minutes(1)).has_value());
        daemon_.Restart();
      });
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_TRUE(killed);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  const Stubs restarted(daemon_);
  ExecuteAndVerify(restarted, operands, RequestOf(operands, "anew"));
}

TEST_F(ResumeTest, WithoutResumptionABreakIsAnError) {
  Proxy proxy(daemon_.socket(), daemon_.folder() + "/proxy.sock");
  const Operands operands = SampleOf(4096, 8);
  const UploadParts parts = PartsOf(operands, "once");
  proxy.CutAfter(1 << 20);
  const auto client = ConnectClient(proxy.address());
  const auto info =
      client->Upload(parts.header, parts.codes, parts.scales, nullptr, {.resume = false});
  EXPECT_TRUE(absl::IsUnavailable(info.status())) << info.status();
  EXPECT_TRUE(Eventually([&] { return Versions() == 0; }));
}

// A kept upload is no call that a drain would wait for.
TEST_F(ResumeTest, ADrainDoesNotWaitForKeptUploads) {
  BreakOff(small_, "kept");
  daemon_.Signal(SIGTERM);
  EXPECT_EQ(daemon_.Wait(absl::Seconds(20)), 0);
}

class ExpiryTest : public ResumeTest {
 protected:
  ExpiryTest() : ResumeTest({"--threads", "1", "--upload-keep-seconds", "1"}) {}
};

// The client has it forgotten; where it asks before the daemon has read the header, the
// upload expires.
TEST_F(ExpiryTest, ACancelledUploadLeavesNothing) {
  const Operands operands = SampleOf(4096, 6);
  const UploadParts parts = PartsOf(operands, "cancelled");
  const auto client = ConnectClient(daemon_.socket());
  std::stop_source stop;
  const auto info =
      client->Upload(parts.header, parts.codes, parts.scales,
                     [&](int64_t, int64_t) { stop.request_stop(); }, {.cancel = stop.get_token()});
  EXPECT_EQ(info.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Eventually([&] { return Versions() == 0; }));
}

TEST_F(ExpiryTest, FreesDeviceMemory) {
  const double before = Metric(daemon_, "tetrad_device_allocated_bytes");
  BreakOff(small_, "expired");
  EXPECT_TRUE(Eventually([&] { return Versions() == 0; }));
  v1::GetUploadResponse kept;
  EXPECT_EQ(Get(stubs_, "expired", "key", &kept).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(
      Eventually([&] { return Metric(daemon_, "tetrad_device_allocated_bytes") == before; }));
}

TEST_P(ResumeOverTest, AWriteArrivesThroughCuts) {
  const bool tcp = GetParam();
  Proxy proxy(tcp ? daemon_.tcp() : daemon_.socket(), tcp ? "" : daemon_.folder() + "/proxy.sock");
  const auto direct = ConnectClient(tcp ? daemon_.tcp() : daemon_.socket());
  const auto lease = AttachTo(*direct);
  std::vector<uint8_t> data((16 << 20) + 5);
  Random random(9);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random.Below(256));
  const auto block = direct->Allocate(lease->lease(), static_cast<int64_t>(data.size()) + 100);
  ASSERT_TRUE(block.ok()) << block.status();
  for (int i = 0; i < 8; ++i) proxy.CutAfter(1000 + random.Below(3 << 20));
  const auto client = ConnectClient(proxy.address());
  const absl::Status written = client->Write(block->block(), 7, data);
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(proxy.cuts(), 8);
  std::vector<uint8_t> back(data.size());
  ASSERT_TRUE(direct->Read(block->block(), 7, back).ok());
  EXPECT_TRUE(back == data);
  std::vector<uint8_t> around(7);
  ASSERT_TRUE(direct->Read(block->block(), 0, around).ok());
  EXPECT_EQ(around, std::vector<uint8_t>(7, 0));
}

TEST_F(ResumeTest, AKeyedWriteIsToldTakenOverAndHasNoGaps) {
  const auto client = ConnectClient(daemon_.socket());
  const auto lease = AttachTo(*client);
  const auto block = client->Allocate(lease->lease(), 1000);
  ASSERT_TRUE(block.ok()) << block.status();
  const auto get = [&](const Stubs& stubs, v1::GetWriteResponse* response) {
    grpc::ClientContext context;
    v1::GetWriteRequest request;
    request.set_block(block->block());
    request.set_write_key("key");
    return stubs.memory->GetWrite(&context, request, response);
  };
  v1::GetWriteResponse got;
  EXPECT_EQ(get(stubs_, &got).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::WriteRequest first;
  first.set_block(block->block());
  first.set_write_key("key");
  first.set_offset(100);
  first.set_data(std::string(50, 'a'));
  grpc::ClientContext older_context;
  v1::WriteResponse response;
  const auto older = stubs_.memory->Write(&older_context, &response);
  ASSERT_TRUE(older->Write(first));
  ASSERT_TRUE(Eventually([&] { return get(stubs_, &got).ok() && got.bytes() == 50; }));
  EXPECT_EQ(got.offset(), 100);
  EXPECT_TRUE(got.under_way());
  EXPECT_EQ(get(Stubs(Connect(daemon_.tcp())), &got).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  const auto write = [&](int64_t offset) {
    first.set_offset(offset);
    grpc::ClientContext context;
    const auto writer = stubs_.memory->Write(&context, &response);
    writer->Write(first);
    writer->WritesDone();
    return writer->Finish();
  };
  EXPECT_EQ(write(151).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_TRUE(write(150).ok());
  EXPECT_EQ(response.bytes(), 50);
  EXPECT_EQ(older->Finish().error_code(), grpc::StatusCode::ABORTED);
  ASSERT_TRUE(get(stubs_, &got).ok());
  EXPECT_EQ(got.offset(), 100);
  EXPECT_EQ(got.bytes(), 100);
  EXPECT_FALSE(got.under_way());
}

}  // namespace
}  // namespace tetrad::e2e
