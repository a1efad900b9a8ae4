// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A client's trace crosses the daemon: into its log, and back in the trailer.
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"
#include <nlohmann/json.hpp>

#include "clients/cpp/client.h"
#include "tests/e2e/gemm_client.h"

namespace tetrad::e2e {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSpan[] = "b7ad6b7169203331";
constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

// The line of `event` in which `key` is `value`, once it is there.
nlohmann::json Line(const Daemon& daemon, const std::string& event, const std::string& key,
                    const std::string& value) {
  const absl::Time limit = absl::Now() + absl::Seconds(30);
  do {
    const std::string log = daemon.Log();
    const std::vector<std::string> lines = absl::StrSplit(log, '\n');
    for (const std::string& line : lines) {
      const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (parsed.is_object() && parsed.value("event", "") == event &&
          parsed.value(key, "") == value) {
        return parsed;
      }
    }
    absl::SleepFor(absl::Milliseconds(10));
  } while (absl::Now() < limit);
  ADD_FAILURE() << "no " << event << " with " << key << "=" << value << " in\n" << daemon.Log();
  return {};
}

struct Answer {
  bool ok = false;
  std::optional<std::string> traceparent;
};

Answer Call(const Stubs& stubs, const std::vector<std::pair<std::string, std::string>>& metadata,
            bool fails = false) {
  grpc::ClientContext context;
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  v1::DropRequest drop;
  drop.set_weights("none");
  v1::DropResponse dropped;
  v1::GetStatusResponse status;
  Answer answer;
  answer.ok = fails ? stubs.weights->Drop(&context, drop, &dropped).ok()
                    : stubs.status->GetStatus(&context, {}, &status).ok();
  const auto& trailer = context.GetServerTrailingMetadata();
  EXPECT_LE(trailer.count("traceparent"), 1u);
  if (const auto found = trailer.find("traceparent"); found != trailer.end()) {
    answer.traceparent = std::string(found->second.data(), found->second.size());
  }
  return answer;
}

TEST(TraceContextTest, LogLinesOfACallHaveItsTrace) {
  const Daemon daemon({"--log-level", "debug", "--log-format", "json"});
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 1});
  Register(stubs, operands, "w");
  auto client = Client::Connect(daemon.socket());
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(*(*client)->Drop("w", {.traceparent = kParent}), 1);
  const auto dropped = Line(daemon, "weights dropped", "trace_id", kTrace);
  EXPECT_EQ(dropped["span_id"], kSpan);
  const auto finished = Line(daemon, "call finished", "trace_id", kTrace);
  EXPECT_EQ(finished["span_id"], kSpan);
  EXPECT_EQ(finished["method"], "tetrad.v1.Weights/Drop");
  EXPECT_EQ(finished["request"], dropped["request"]);
  EXPECT_FALSE(finished.contains("tracestate"));
  // The upload came without.
  EXPECT_FALSE(Line(daemon, "weights uploaded", "name", "w").contains("trace_id"));

  EXPECT_EQ(Call(stubs, {{"x-request-id", "state"},
                         {"traceparent", kParent},
                         {"tracestate", "rojo=1"},
                         {"tracestate", "congo=2"}})
                .traceparent,
            kParent);
  EXPECT_EQ(Line(daemon, "call finished", "request", "state")["tracestate"], "rojo=1,congo=2");
}

TEST(TraceContextTest, TheTrailerSaysWhatWasUnderstood) {
  const Daemon daemon({"--log-level", "debug", "--log-format", "json"});
  const Stubs stubs(daemon);
  EXPECT_EQ(Call(stubs, {}).traceparent, std::nullopt);
  EXPECT_EQ(Call(stubs, {{"traceparent", kParent}}).traceparent, kParent);
  const Answer failed = Call(stubs, {{"traceparent", kParent}}, /*fails=*/true);
  EXPECT_FALSE(failed.ok);
  EXPECT_EQ(failed.traceparent, kParent);
  std::string later = kParent;
  later.replace(0, 2, "42");
  EXPECT_EQ(Call(stubs, {{"traceparent", later + "-more"}}).traceparent, kParent);
  for (const std::string& bad : {std::string(), std::string("00-"), std::string(kParent) + "-more",
                                 std::string(4000, '0'), std::string("ff") + (kParent + 2)}) {
    const Answer answer = Call(stubs, {{"x-request-id", "bad"}, {"traceparent", bad}});
    EXPECT_TRUE(answer.ok) << bad;
    EXPECT_EQ(answer.traceparent, std::nullopt) << bad;
  }
  EXPECT_EQ(Call(stubs, {{"traceparent", kParent}, {"traceparent", kParent}}).traceparent,
            std::nullopt);
  EXPECT_FALSE(Line(daemon, "call finished", "request", "bad").contains("trace_id"));
}

}  // namespace
}  // namespace tetrad::e2e
