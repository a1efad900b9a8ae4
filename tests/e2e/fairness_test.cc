// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Clients and streams that all want the device: each gets its share of it, and
// none waits for another's backlog.
#include <algorithm>
#include <fstream>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "clients/cpp/execute_stream.h"
#include "tests/e2e/gemm_client.h"
#include "tests/e2e/memory_client.h"
#include "tests/e2e/stopped_threads.h"

namespace tetrad::e2e {
namespace {

// printf %s alpha | sha256sum, and of beta
constexpr char kAlpha[] = "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8";
constexpr char kBeta[] = "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753";

std::string Access(const std::string& of_alpha, const std::string& of_beta) {
  return absl::StrCat(
      "anonymous_unix = [\"client\", \"operator\"]\n", "[[tokens]]\nname = \"alpha\"\nsha256 = \"",
      kAlpha, "\"\ngroups = [\"client\"]\n", of_alpha, "[[tokens]]\nname = \"beta\"\nsha256 = \"",
      kBeta, "\"\ngroups = [\"client\"]\n", of_beta);
}

// Tens of milliseconds for one thread: long beside what an answer takes to arrive.
v1::ExecuteRequest RegisterShort(const Stubs& stubs) {
  constexpr int32_t kM = 96;
  v1::ExecuteRequest request = RegisterSlow(stubs, "w");
  const int32_t m = request.signature().exact().m(0);
  request.mutable_signature()->mutable_exact()->set_m(0, kM);
  v1::InlineOperands& operands = *request.mutable_inline_operands();
  operands.mutable_activations()->resize(operands.activations().size() * kM / m);
  operands.mutable_activation_scales()->resize(operands.activation_scales().size() * kM / m);
  return request;
}

// While the device stands still `counts[i]` requests go to stream i, one stream
// after the other. Then it runs; the streams, in the order of their answers.
std::vector<size_t> OrderOfAnswers(const Daemon& daemon, const v1::ExecuteRequest& request,
                                   const std::vector<std::unique_ptr<ExecuteStream>>& streams,
                                   const std::vector<int>& counts) {
  const auto client = ConnectClient(daemon.socket());
  // What is not measured: the plan is built.
  EXPECT_TRUE(streams[0]->Submit(0, request));
  EXPECT_EQ(streams[0]->Next()->code(), 0);
  std::vector<size_t> order;
  std::mutex mutex;  // guards order
  std::vector<std::jthread> readers;
  {
    StoppedThreads device(daemon.pid(), kDeviceThread);
    int64_t asked = 0;
    for (size_t i = 0; i < streams.size(); ++i) {
      for (int id = 1; id <= counts[i]; ++id) {
        EXPECT_TRUE(streams[i]->Submit(static_cast<uint64_t>(id), request));
        ++asked;
        EXPECT_TRUE(Eventually([&] { return client->GetStatus()->in_flight() == asked; }));
      }
    }
    for (size_t i = 0; i < streams.size(); ++i) {
      readers.emplace_back([&, i] {
        for (int answers = 0; answers < counts[i]; ++answers) {
          const auto answer = streams[i]->Next();
          ASSERT_TRUE(answer.has_value());
          EXPECT_EQ(answer->code(), 0) << answer->message();
          std::lock_guard lock(mutex);
          order.push_back(i);
        }
      });
    }
  }
  readers.clear();
  return order;
}

// How many of `order` are of `stream` before the last of `other`.
int64_t Before(const std::vector<size_t>& order, size_t stream, size_t other) {
  const auto last = std::find(order.rbegin(), order.rend(), other).base();
  return std::count(order.begin(), last, stream);
}

TEST(FairnessTest, AStreamDoesNotWaitForTheBacklogOfAnother) {
  const Daemon daemon({"--threads", "1"});
  const v1::ExecuteRequest request = RegisterShort(Stubs(daemon));
  const auto client = ConnectClient(daemon.socket());
  std::vector<std::unique_ptr<ExecuteStream>> streams;
  for (int i = 0; i < 2; ++i) streams.push_back(client->OpenExecuteStream());
  const std::vector<size_t> order = OrderOfAnswers(daemon, request, streams, {16, 3});
  ASSERT_EQ(order.size(), 19u);
  // Two are with the device already, then they take turns; the network may swap neighbours.
  EXPECT_LE(Before(order, 0, 1), 7) << ::testing::PrintToString(order);
}

class NamedClientsTest : public ::testing::Test {
 protected:
  // Three streams, two of alpha and one of beta, who ask for 8, 8 and 8.
  std::vector<size_t> OrderOf(const std::string& of_alpha, const std::string& of_beta) {
    const std::string path = folder_.path() + "/access.toml";
    std::ofstream(path) << Access(of_alpha, of_beta);
    const Daemon daemon({"--threads", "1", "--access", path});
    const v1::ExecuteRequest request = RegisterShort(Stubs(daemon));
    std::vector<std::unique_ptr<Client>> clients;
    std::vector<std::unique_ptr<ExecuteStream>> streams;
    for (const char* const token : {"alpha", "alpha", "beta"}) {
      ClientOptions options;
      options.token_file = absl::StrCat(folder_.path(), "/", token);
      std::ofstream(options.token_file) << token;
      auto client = Client::Connect(daemon.socket(), options);
      EXPECT_TRUE(client.ok()) << client.status();
      streams.push_back((*client)->OpenExecuteStream());
      clients.push_back(*std::move(client));
    }
    return OrderOfAnswers(daemon, request, streams, {8, 8, 8});
  }
  TemporaryFolder folder_;
};

// Of streams as flows beta's last would come with the last of alpha's.
TEST_F(NamedClientsTest, ManyStreamsGetAClientNoMore) {
  const std::vector<size_t> order = OrderOf("", "");
  ASSERT_EQ(order.size(), 24u);
  EXPECT_LE(Before(order, 0, 2) + Before(order, 1, 2), 12) << ::testing::PrintToString(order);
}

TEST_F(NamedClientsTest, WeightsDivideTheDevice) {
  const std::vector<size_t> order = OrderOf("weight = 4\n", "weight = 1\n");
  ASSERT_EQ(order.size(), 24u);
  // Four of alpha's for each of beta's; without weights all of beta's would be there.
  const int64_t before = std::max(Before(order, 2, 0), Before(order, 2, 1));
  EXPECT_GE(before, 3) << ::testing::PrintToString(order);
  EXPECT_LE(before, 6) << ::testing::PrintToString(order);
}

}  // namespace
}  // namespace tetrad::e2e
