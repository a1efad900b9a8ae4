// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/memory_client.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace tetrad::e2e {
namespace {

constexpr size_t kAlignment = 128;
constexpr uint8_t kPattern = 0xA5;

void Align(std::string& bytes) {
  bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment,
               static_cast<char>(kPattern));
}

void Append(std::string& out, const void* data, int64_t bytes) {
  if (bytes > 0) out.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

int64_t OutputBytes(const Operands& operands, const GroupProblem& group) {
  return int64_t{group.m} * group.n * OutputElementBytes(operands.types().c_type);
}

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

std::unique_ptr<Client> ConnectClient(const std::string& address) {
  auto client = Client::Connect(address);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

std::unique_ptr<Attachment> AttachTo(Client& client, const std::string& resume) {
  auto attachment = client.Attach(resume);
  EXPECT_TRUE(attachment.ok()) << attachment.status();
  return attachment.ok() ? *std::move(attachment) : nullptr;
}

bool Eventually(const std::function<bool()>& condition) {
  const absl::Time limit = absl::Now() + absl::Minutes(1);
  while (!condition()) {
    if (absl::Now() > limit) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

std::string Held(const Daemon& daemon, Client& client) {
  const auto status = client.GetStatus();
  if (!status.ok()) return std::string(status.status().message());
  return absl::StrCat("leases=", status->leases(), " detached=", status->detached_leases(),
                      " blocks=", status->blocks(), " block_bytes=", status->block_bytes(),
                      " handles=", status->plan_handles(), " in_flight=", status->in_flight(),
                      " call_bytes=", Metric(daemon, "tetrad_call_bytes"),
                      " reclaimable=", Metric(daemon, "tetrad_reclaimable"),
                      " streams=", Metric(daemon, "tetrad_open_streams{kind=\"attach\"}"), "+",
                      Metric(daemon, "tetrad_open_streams{kind=\"execute\"}"));
}

double Metric(const Daemon& daemon, std::string_view sample) {
  for (const auto line : absl::StrSplit(HttpGet(daemon.http(), "/metrics"), '\n')) {
    const std::string text(line);
    if (text.starts_with(sample) && text.size() > sample.size() && text[sample.size()] == ' ') {
      return std::atof(text.c_str() + sample.size() + 1);
    }
  }
  return -1;
}

PlacedOperands::PlacedOperands(Client& client, const Operands& operands, const std::string& weights,
                               const std::string& lease)
    : operands_(operands) {
  v1::PrepareRequest prepare;
  *prepare.mutable_signature() = SignatureOf(operands, weights);
  prepare.set_lease(lease);
  const auto prepared = client.Prepare(prepare);
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  if (!prepared.ok()) return;
  request.set_plan(prepared->plan());
  const v1::PlanInfo& info = prepared->info();
  output_bytes_ = info.output_block_bytes();

  const bool gaps = operands.stack().groups == 0;
  std::string activations, scales, row_scales;
  for (const GroupProblem& group : operands.groups()) {
    if (gaps) Align(activations);
    Append(activations, group.a, ActivationBytes(operands.types().a_type, group.m, group.k));
    if (group.a_scales != nullptr) {
      if (gaps) Align(scales);
      Append(scales, group.a_scales,
             ScalePlaneBytes(operands.types().a_scale_layout, group.m, group.k));
    }
    if (group.row_scale != nullptr) {
      Append(row_scales, group.row_scale, int64_t{group.m} * 4);
    }
  }
  v1::BlockOperands& blocks = *request.mutable_block_operands();
  std::string image;
  const auto place = [&](v1::BlockRange& range, const std::string& part, int64_t bytes) {
    Align(image);
    range.set_offset(static_cast<int64_t>(image.size()));
    range.set_bytes(bytes);
    image += part;
    image.resize(static_cast<size_t>(range.offset() + bytes), static_cast<char>(kPattern));
  };
  EXPECT_LE(static_cast<int64_t>(activations.size()), info.activation_block_bytes());
  EXPECT_LE(static_cast<int64_t>(scales.size()), info.activation_scale_block_bytes());
  place(*blocks.mutable_activations(), activations, info.activation_block_bytes());
  if (!scales.empty()) {
    place(*blocks.mutable_activation_scales(), scales, info.activation_scale_block_bytes());
  }
  place(*blocks.mutable_output(), "", output_bytes_);
  if (!row_scales.empty()) {
    place(*blocks.mutable_row_scale_block(), row_scales, static_cast<int64_t>(row_scales.size()));
  }
  Align(image);

  const auto allocated = client.Allocate(lease, static_cast<int64_t>(image.size()));
  EXPECT_TRUE(allocated.ok()) << allocated.status();
  if (!allocated.ok()) return;
  block = allocated->block();
  block_bytes = allocated->bytes();
  blocks.mutable_activations()->set_block(block);
  blocks.mutable_output()->set_block(block);
  if (!scales.empty()) blocks.mutable_activation_scales()->set_block(block);
  if (!row_scales.empty()) blocks.mutable_row_scale_block()->set_block(block);
  const absl::Status written = client.Write(block, 0, Bytes(image));
  EXPECT_TRUE(written.ok()) << written;
}

std::string PlacedOperands::Output(Client& client) {
  std::vector<uint8_t> bytes(static_cast<size_t>(output_bytes_));
  const absl::Status read = client.Read(block, request.block_operands().output().offset(), bytes);
  EXPECT_TRUE(read.ok()) << read;
  std::string output;
  size_t at = 0;
  for (const GroupProblem& group : operands_.groups()) {
    const size_t begin =
        operands_.stack().groups != 0 ? at : (at + kAlignment - 1) / kAlignment * kAlignment;
    for (; at < begin && at < bytes.size(); ++at) EXPECT_EQ(bytes[at], kPattern) << "gap at " << at;
    const auto size = static_cast<size_t>(OutputBytes(operands_, group));
    if (size == 0) continue;
    at = begin + size;
    EXPECT_LE(at, bytes.size());
    if (at > bytes.size()) break;
    output.append(reinterpret_cast<const char*>(bytes.data()) + begin, size);
  }
  return output;
}

void PlacedOperands::Verify(Client& client) {
  const Verdict verdict = Judge(operands_, Output(client));
  EXPECT_TRUE(verdict.pass) << verdict.ToString();
  EXPECT_GT(verdict.elements, 0);
}

void PlacedOperands::Clear(Client& client) {
  const std::string pattern(static_cast<size_t>(output_bytes_), static_cast<char>(kPattern));
  const absl::Status written =
      client.Write(block, request.block_operands().output().offset(), Bytes(pattern));
  EXPECT_TRUE(written.ok()) << written;
}

}  // namespace tetrad::e2e
