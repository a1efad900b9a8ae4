// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The metrics page of a daemon under load: valid, consistent, and counting
// what happened.
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

#include "tests/e2e/gemm_client.h"

namespace tetrad::e2e {
namespace {

using ::testing::HasSubstr;

// Samples by name with labels, in the order of the page.
struct Page {
  std::vector<std::pair<std::string, double>> samples;
  std::map<std::string, double> values;
};

Page Scrape(const Daemon& daemon) {
  Page page;
  for (const auto line : absl::StrSplit(HttpGet(daemon.http(), "/metrics"), '\n')) {
    const std::string text(line);
    if (text.empty() || text[0] == '#') continue;
    const size_t space = text.rfind(' ');
    page.samples.emplace_back(text.substr(0, space), std::atof(text.c_str() + space + 1));
    page.values.insert(page.samples.back());
  }
  return page;
}

// The name of the sample with `suffix` replaced and the le label cut out.
std::string CountOf(const std::string& bucket) {
  std::string name = bucket;
  name.replace(name.find("_bucket"), 7, "_count");
  const size_t le = name.find("le=\"");
  const size_t end = name.find('"', le + 4) + 1;
  size_t begin = le;
  if (begin > 0 && name[begin - 1] == ',') --begin;
  name.erase(begin, end - begin);
  const size_t empty = name.find("{}");
  return empty == std::string::npos ? name : name.erase(empty, 2);
}

void ExpectConsistent(const Page& page) {
  double previous = 0;
  std::string series;
  for (const auto& [name, value] : page.samples) {
    if (name.find("_bucket") == std::string::npos) continue;
    const std::string count = CountOf(name);
    if (count != series) previous = 0;
    EXPECT_GE(value, previous) << name;
    if (name.find("+Inf") != std::string::npos) {
      ASSERT_TRUE(page.values.contains(count)) << count;
      EXPECT_EQ(value, page.values.at(count)) << name;
    }
    series = count;
    previous = value;
  }
}

bool Counts(const std::string& name) {
  for (const char* part : {"_total", "_bucket", "_count", "_sum"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(MetricsTest, ConsistentUnderLoadAndNothingFalls) {
  const Daemon daemon;
  const Operands operands(kShapeT1, {.seed = 1});
  Register(Stubs(daemon), operands, "loaded");
  const v1::ExecuteRequest request = RequestOf(operands, "loaded");
  std::atomic<bool> stop{false};
  std::atomic<int> executed{0};
  std::vector<std::jthread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      const Stubs stubs(daemon);
      while (!stop) {
        grpc::ClientContext context;
        v1::ExecuteResponse response;
        if (stubs.gemm->Execute(&context, request, &response).ok()) ++executed;
      }
    });
  }
  Page before;
  const absl::Time end = absl::Now() + absl::Seconds(3);
  int scrapes = 0;
  while (absl::Now() < end) {
    Page page = Scrape(daemon);
    ASSERT_FALSE(page.samples.empty());
    ExpectConsistent(page);
    for (const auto& [name, value] : before.values) {
      if (!Counts(name)) continue;
      ASSERT_TRUE(page.values.contains(name)) << name;
      EXPECT_GE(page.values.at(name), value) << name;
    }
    before = std::move(page);
    ++scrapes;
    absl::SleepFor(absl::Milliseconds(10));
  }
  stop = true;
  clients.clear();
  EXPECT_GT(scrapes, 10);
  EXPECT_GT(executed, 10);
  const Page page = Scrape(daemon);
  const double total = executed;
  EXPECT_EQ(page.values.at("tetrad_requests_total{method=\"tetrad.v1.Gemm/Execute\",code=\"OK\"}"),
            total);
  EXPECT_EQ(page.values.at("tetrad_request_seconds_count{method=\"tetrad.v1.Gemm/Execute\"}"),
            total);
  EXPECT_EQ(page.values.at("tetrad_device_seconds_count"), total);
  EXPECT_EQ(page.values.at("tetrad_executions_total{weights=\"loaded\"}"), total);
  EXPECT_EQ(page.values.at("tetrad_requests_in_flight{method=\"tetrad.v1.Gemm/Execute\"}"), 0);
  EXPECT_EQ(page.values.at("tetrad_launches_in_flight"), 0);
  EXPECT_EQ(page.values.at("tetrad_plan_cache_misses_total"), 1);
  EXPECT_EQ(page.values.at("tetrad_weights_versions"), 1);
  EXPECT_GT(page.values.at("tetrad_received_bytes_total{method=\"tetrad.v1.Gemm/Execute\"}"),
            total * static_cast<double>(request.inline_operands().activations().size()));
}

TEST(MetricsTest, PageIsValidAndComplete) {
  const Daemon daemon;
  const Stubs stubs(daemon);
  const Operands operands(kShapeT1, {.seed = 1});
  // One name more than there are labels for.
  for (int i = 0; i <= 64; ++i) {
    const std::string name = absl::StrCat("w", i);
    Register(stubs, operands, name);
    ExecuteAndVerify(stubs, operands, RequestOf(operands, name));
  }
  v1::ExecuteResponse response;
  grpc::ClientContext context;
  EXPECT_FALSE(stubs.gemm->Execute(&context, {}, &response).ok());
  int code = 0;
  const std::string text = HttpGet(daemon.http(), "/metrics", &code);
  EXPECT_EQ(code, 200);
  EXPECT_THAT(text, HasSubstr("code=\"INVALID_ARGUMENT\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tetrad_executions_total{weights=\"w63\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tetrad_executions_total{weights=\"other\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("le=\"1e-05\""));
  EXPECT_THAT(text, HasSubstr("tetrad_build_info{version="));
  for (const char* page : {"/", "/metrics/x", "/../etc/passwd", "/favicon.ico"}) {
    HttpGet(daemon.http(), page, &code);
    EXPECT_TRUE(code == 404 || code == 400) << page << ": " << code;
  }
  if (std::string(PROMTOOL).empty()) GTEST_SKIP() << "promtool was not found when configuring";
  const std::string file = daemon.folder() + "/metrics";
  std::ofstream(file) << text;
  const std::string command =
      std::string(PROMTOOL) + " check metrics < " + file + " > " + file + ".out 2>&1";
  const int result = std::system(command.c_str());
  std::ifstream output(file + ".out");
  EXPECT_EQ(result, 0) << std::string(std::istreambuf_iterator<char>(output), {});
}

}  // namespace
}  // namespace tetrad::e2e
