// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Page(const Metrics& metrics) {
  return prometheus::TextSerializer().Serialize(metrics.Collect({}, {.uuid = "u"}));
}

TEST(SecondsHistogramTest, BoundsAreInclusiveAndPrintedAsWritten) {
  SecondsHistogram histogram;
  histogram.Observe(2'000);  // exactly the first bound
  histogram.Observe(2'001);
  histogram.Observe(51'000'000'000);  // beyond the last
  const auto collected = histogram.Collect();
  ASSERT_EQ(collected.bucket.size(), SecondsHistogram::kBounds.size() + 1);
  EXPECT_EQ(collected.bucket[0].cumulative_count, 1u);
  EXPECT_EQ(collected.bucket[1].cumulative_count, 2u);
  EXPECT_EQ(collected.bucket[SecondsHistogram::kBounds.size() - 1].cumulative_count, 2u);
  EXPECT_EQ(collected.bucket.back().cumulative_count, 3u);
  EXPECT_EQ(collected.sample_count, 3u);
  EXPECT_NEAR(collected.sample_sum, 51.000004001, 1e-9);
}

TEST(SecondsHistogramTest, ConsistentWhileObserved) {
  SecondsHistogram histogram;
  std::atomic<bool> stop{false};
  std::jthread writer([&] {
    for (int64_t i = 0; !stop; ++i) histogram.Observe(i % 100'000'000 * 1000);
  });
  uint64_t last_count = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto collected = histogram.Collect();
    uint64_t previous = 0;
    for (const auto& bucket : collected.bucket) {
      EXPECT_GE(bucket.cumulative_count, previous);
      previous = bucket.cumulative_count;
    }
    EXPECT_EQ(previous, collected.sample_count);
    EXPECT_GE(collected.sample_count, last_count);
    last_count = collected.sample_count;
  }
  stop = true;
}

TEST(MetricsTest, RefusalsAreCountedByReason) {
  Metrics metrics;
  metrics.CountRefusal(Reason::kNoCredential);
  metrics.CountRefusal(Reason::kNotAllowed);
  metrics.CountRefusal(Reason::kNotAllowed);
  metrics.CountRefusal(Reason::kNotYours);
  const std::string page = Page(metrics);
  EXPECT_THAT(page, HasSubstr("tetrad_refused_calls_total{reason=\"NO_CREDENTIAL\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_refused_calls_total{reason=\"BAD_CREDENTIAL\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_refused_calls_total{reason=\"NOT_ALLOWED\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_refused_calls_total{reason=\"NOT_YOURS\"} 1\n"));
}

TEST(MetricsTest, CallsAreCountedByMethodAndCode) {
  Metrics metrics;
  metrics.CallBegan(Method::kExecute);
  metrics.CallBegan(Method::kExecute);
  metrics.CallEnded(Method::kExecute, grpc::StatusCode::ABORTED, 1'000'000, 10, 20);
  const std::string page = Page(metrics);
  EXPECT_THAT(page, HasSubstr("tetrad_requests_total{method=\"tetrad.v1.Gemm/Execute\","
                              "code=\"ABORTED\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_requests_total{method=\"tetrad.v1.Gemm/Prepare\","
                              "code=\"OK\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_requests_in_flight{method=\"tetrad.v1.Gemm/Execute\"} 1\n"));
  EXPECT_THAT(page,
              HasSubstr("tetrad_received_bytes_total{method=\"tetrad.v1.Gemm/Execute\"} 10\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_sent_bytes_total{method=\"tetrad.v1.Gemm/Execute\"} 20\n"));
  EXPECT_THAT(page, HasSubstr("le=\"0.001\"} 1\n"));
}

TEST(MetricsTest, WeightsLabelsAreBounded) {
  Metrics metrics;
  for (int i = 0; i < 1000; ++i) metrics.Executed({}, 1.5, absl::StrCat("w", i, "@1"));
  metrics.Executed({}, 1.5, "w0@2");  // another version, the same name
  const std::string page = Page(metrics);
  EXPECT_THAT(page, HasSubstr("tetrad_executions_total{weights=\"w0\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_executions_total{weights=\"other\"} 936\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_device_seconds_count 1001\n"));
}

// Names that come and go, as those of verification do, must not use up the
// labels, and what was counted is never lost.
TEST(MetricsTest, DroppedNamesFreeTheirLabel) {
  Metrics metrics;
  for (int i = 0; i < 1000; ++i) {
    metrics.Executed({}, 1.5, absl::StrCat("temporary", i, "@1"));
    metrics.WeightsGone(absl::StrCat("temporary", i));
  }
  metrics.WeightsGone("never-run");
  metrics.Executed({}, 1.5, "kept@2");
  const std::string page = Page(metrics);
  EXPECT_THAT(page, HasSubstr("tetrad_executions_total{weights=\"kept\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_executions_total{weights=\"other\"} 1000\n"));
  EXPECT_THAT(page, Not(HasSubstr("temporary")));
  EXPECT_THAT(page, HasSubstr("tetrad_floor_seconds_total 0.0015015\n"));
}

TEST(MetricsTest, LevelsOfLeasesPoolAndStreams) {
  Metrics metrics;
  metrics.StreamAnswered(grpc::StatusCode::OK);
  metrics.StreamAnswered(grpc::StatusCode::CANCELLED);
  Metrics::Levels levels;
  levels.engine.leases = {.leases = 5, .detached = 2, .expired = 9};
  levels.engine.pool.whole_bytes = 77;
  levels.engine.outcomes[static_cast<size_t>(LaunchOutcome::kDeadlineExceeded)] = 3;
  levels.attach_streams = 4;
  const std::string page = prometheus::TextSerializer().Serialize(metrics.Collect(levels, {}));
  for (const char* line :
       {"tetrad_stream_requests_total{code=\"OK\"} 1\n",
        "tetrad_stream_requests_total{code=\"CANCELLED\"} 1\n",
        "tetrad_leases{state=\"attached\"} 3\n", "tetrad_leases{state=\"detached\"} 2\n",
        "tetrad_leases_expired_total 9\n", "tetrad_pool_bytes{state=\"whole\"} 77\n",
        "tetrad_launches_total{outcome=\"deadline_exceeded\"} 3\n",
        "tetrad_launches_total{outcome=\"device_lost\"} 0\n",
        "tetrad_open_streams{kind=\"attach\"} 4\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_EQ(MethodName(Method::kListBlocks), "tetrad.v1.Memory/List");
}

TEST(MetricsTest, WhatTheDeviceHoldsToExecute) {
  Metrics::Levels levels;
  levels.engine.execution = {.plans = 1,
                             .table_bytes = 2,
                             .tensor_maps = 3,
                             .graphs = 4,
                             .graph_bytes = 5,
                             .graph_limit_bytes = 6,
                             .captures = 7,
                             .proofs = 8};
  const std::string page = prometheus::TextSerializer().Serialize(Metrics().Collect(levels, {}));
  for (const char* line :
       {"tetrad_device_plans 1\n", "tetrad_device_table_bytes 2\n", "tetrad_device_tensor_maps 3\n",
        "tetrad_device_graphs 4\n", "tetrad_device_graph_bytes 5\n",
        "tetrad_device_graph_limit_bytes 6\n", "tetrad_device_captures_total 7\n",
        "tetrad_device_replay_proofs_total 8\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

TEST(MetricsTest, FilesThatAreRefusedAndWhenTheCertificateExpires) {
  Metrics::Levels levels;
  std::string page = prometheus::TextSerializer().Serialize(Metrics().Collect(levels, {}));
  EXPECT_THAT(page, HasSubstr("tetrad_files_refused{files=\"access\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_files_refused{files=\"tls\"} 0\n"));
  EXPECT_THAT(page, Not(HasSubstr("tetrad_certificate_expiry")));
  levels.tls_refused = true;
  levels.certificate_expires = absl::FromUnixSeconds(4'000'000'000);
  page = prometheus::TextSerializer().Serialize(Metrics().Collect(levels, {}));
  EXPECT_THAT(page, HasSubstr("tetrad_files_refused{files=\"access\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_files_refused{files=\"tls\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_certificate_expiry_timestamp_seconds 4000000000\n"));
}

TEST(MetricsTest, NamesAreUniqueAndPrefixed) {
  std::set<std::string> names;
  for (const auto& family : Metrics().Collect({}, {})) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_TRUE(family.name.starts_with("tetrad_") || family.name.starts_with("process_"));
    EXPECT_EQ(family.help.find('\n'), std::string::npos);
    EXPECT_EQ(family.type == prometheus::MetricType::Counter, family.name.ends_with("_total"))
        << family.name;
  }
}

}  // namespace
}  // namespace tetrad
