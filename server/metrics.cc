// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/metrics.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "server/process_metrics.h"
#include "server/status.h"
#include "server/version.h"

namespace tetrad {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// By LaunchOutcome.
constexpr std::array<std::string_view, kLaunchOutcomes> kOutcomeNames = {
    "done", "refused", "failed", "deadline_exceeded", "cancelled", "shut_down", "device_lost"};
static_assert(static_cast<size_t>(LaunchOutcome::kDeviceLost) == kLaunchOutcomes - 1);

uint64_t Read(const std::atomic<uint64_t>& value) { return value.load(std::memory_order_relaxed); }

ClientMetric Counter(double value, Labels labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.counter.value = value;
  return metric;
}

ClientMetric Gauge(double value, Labels labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.gauge.value = value;
  return metric;
}

ClientMetric Histogram(const SecondsHistogram& histogram, Labels labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.histogram = histogram.Collect();
  return metric;
}

Labels MethodLabel(size_t method) {
  return {{"method", std::string(MethodName(static_cast<Method>(method)))}};
}

// One sample per value of a label.
MetricFamily Labelled(const char* name, const char* help, MetricType type, const char* label,
                      std::initializer_list<std::pair<const char*, int64_t>> samples) {
  MetricFamily family{name, help, type, {}};
  for (const auto& [value, number] : samples) {
    const auto sample = static_cast<double>(number);
    family.metric.push_back(type == MetricType::Counter ? Counter(sample, {{label, value}})
                                                        : Gauge(sample, {{label, value}}));
  }
  return family;
}

// One sample per code that occurred, and OK.
template <size_t kCodes>
MetricFamily ByCode(const char* name, const char* help,
                    const std::array<std::atomic<uint64_t>, kCodes>& counts) {
  MetricFamily family{name, help, MetricType::Counter, {}};
  for (size_t code = 0; code < kCodes; ++code) {
    const uint64_t count = Read(counts[code]);
    if (count == 0 && code != 0) continue;
    family.metric.push_back(
        Counter(static_cast<double>(count),
                {{"code", std::string(CodeName(static_cast<grpc::StatusCode>(code)))}}));
  }
  return family;
}

struct Level {
  const char* name;
  const char* help;
  MetricType type;
  double value;
};

}  // namespace

std::string_view MethodName(Method method) {
  static constexpr std::array<std::string_view, kMethods> kNames = {
      "tetrad.v1.Weights/Upload",     "tetrad.v1.Weights/Load",    "tetrad.v1.Weights/Seal",
      "tetrad.v1.Weights/List",       "tetrad.v1.Weights/Drop",    "tetrad.v1.Gemm/Prepare",
      "tetrad.v1.Gemm/Execute",       "tetrad.v1.Gemm/Release",    "tetrad.v1.Status/GetStatus",
      "tetrad.v1.Gemm/ExecuteStream", "tetrad.v1.Memory/Attach",   "tetrad.v1.Memory/Detach",
      "tetrad.v1.Memory/Allocate",    "tetrad.v1.Memory/Write",    "tetrad.v1.Memory/Read",
      "tetrad.v1.Memory/Free",        "tetrad.v1.Memory/List",     "tetrad.v1.Gemm/Submit",
      "tetrad.v1.Gemm/Wait",          "tetrad.v1.Gemm/Watch",      "tetrad.v1.Gemm/Cancel",
      "tetrad.v1.Weights/GetUpload",  "tetrad.v1.Memory/GetWrite", "tetrad.v1.Admin/Drain",
      "tetrad.v1.Admin/SetLogLevel",  "tetrad.v1.Admin/EndLease"};
  return kNames[static_cast<size_t>(method)];
}

void Metrics::CallBegan(Method method) {
  methods_[static_cast<size_t>(method)].in_flight.fetch_add(1, std::memory_order_relaxed);
}

void Metrics::CallEnded(Method method, grpc::StatusCode code, int64_t nanoseconds,
                        int64_t received_bytes, int64_t sent_bytes) {
  MethodCounts& counts = methods_[static_cast<size_t>(method)];
  const size_t index = std::min(static_cast<size_t>(code), kCodes - 1);
  counts.ended[index].fetch_add(1, std::memory_order_relaxed);
  counts.in_flight.fetch_sub(1, std::memory_order_relaxed);
  counts.received_bytes.fetch_add(static_cast<uint64_t>(received_bytes), std::memory_order_relaxed);
  counts.sent_bytes.fetch_add(static_cast<uint64_t>(sent_bytes), std::memory_order_relaxed);
  counts.seconds.Observe(nanoseconds);
}

void Metrics::StreamAnswered(grpc::StatusCode code) {
  const size_t index = std::min(static_cast<size_t>(code), kCodes - 1);
  stream_answers_[index].fetch_add(1, std::memory_order_relaxed);
}

void Metrics::StreamStalled(Method method) {
  methods_[static_cast<size_t>(method)].stalled.fetch_add(1, std::memory_order_relaxed);
}

Metrics::Refused Metrics::CountRefusal(Reason reason) {
  const Refused kind = reason == Reason::kNoCredential    ? Refused::kNoCredential
                       : reason == Reason::kBadCredential ? Refused::kBadCredential
                       : reason == Reason::kNotAllowed    ? Refused::kNotAllowed
                                                          : Refused::kNotYours;
  refused_[static_cast<size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  return kind;
}

void Metrics::TicketEnded(grpc::StatusCode code) {
  const size_t index = std::min(static_cast<size_t>(code), kCodes - 1);
  ticket_outcomes_[index].fetch_add(1, std::memory_order_relaxed);
}

void Metrics::WeightsGone(std::string_view name) {
  std::lock_guard lock(mutex_);
  const auto found = executions_.find(name);
  if (found == executions_.end()) return;
  other_executions_ += found->second;
  executions_.erase(found);
}

void Metrics::Executed(const Timings& timings, double floor_us, std::string_view weights) {
  floor_ns_.fetch_add(static_cast<uint64_t>(floor_us * 1e3), std::memory_order_relaxed);
  queue_seconds_.Observe(timings.queued_ns);
  launch_seconds_.Observe(timings.launch_ns);
  device_seconds_.Observe(timings.device_ns);
  const std::string_view name = weights.substr(0, weights.rfind('@'));
  std::lock_guard lock(mutex_);
  if (const auto found = executions_.find(name); found != executions_.end()) {
    ++found->second;
  } else if (executions_.size() < kWeightsLabels) {
    executions_.emplace(name, 1);
  } else {
    ++other_executions_;
  }
}

std::vector<MetricFamily> Metrics::Collect(const Levels& levels, const DeviceLimits& device) const {
  std::vector<MetricFamily> families;
  const Version version = BuildVersion();
  families.push_back({"tetrad_build_info",
                      "What is running; always 1.",
                      MetricType::Gauge,
                      {Gauge(1, {{"version", std::string(version.version)},
                                 {"commit", std::string(version.commit)},
                                 {"compiler", std::string(version.compiler)}})}});
  families.push_back({"tetrad_device_info",
                      "The device that computes; always 1.",
                      MetricType::Gauge,
                      {Gauge(1, {{"uuid", device.uuid}, {"capability", device.capability}})}});

  MetricFamily requests{"tetrad_requests_total",
                        "RPCs ended, by method and gRPC status code.",
                        MetricType::Counter,
                        {}};
  MetricFamily in_flight{
      "tetrad_requests_in_flight", "RPCs begun and not ended.", MetricType::Gauge, {}};
  MetricFamily received{"tetrad_received_bytes_total",
                        "Bytes of messages received in RPCs ended.",
                        MetricType::Counter,
                        {}};
  MetricFamily sent{
      "tetrad_sent_bytes_total", "Bytes of messages sent in RPCs ended.", MetricType::Counter, {}};
  MetricFamily seconds{"tetrad_request_seconds",
                       "Time from the arrival of an RPC until its reply was handed to the network.",
                       MetricType::Histogram,
                       {}};
  MetricFamily stalled{"tetrad_stalled_streams_total",
                       "RPCs ended because their client stood still for progress_seconds.",
                       MetricType::Counter,
                       {}};
  for (size_t m = 0; m < kMethods; ++m) {
    const MethodCounts& counts = methods_[m];
    for (size_t code = 0; code < kCodes; ++code) {
      const uint64_t ended = Read(counts.ended[code]);
      if (ended == 0 && code != 0) continue;
      Labels labels = MethodLabel(m);
      labels.push_back({"code", std::string(CodeName(static_cast<grpc::StatusCode>(code)))});
      requests.metric.push_back(Counter(static_cast<double>(ended), std::move(labels)));
    }
    in_flight.metric.push_back(Gauge(
        static_cast<double>(counts.in_flight.load(std::memory_order_relaxed)), MethodLabel(m)));
    received.metric.push_back(
        Counter(static_cast<double>(Read(counts.received_bytes)), MethodLabel(m)));
    sent.metric.push_back(Counter(static_cast<double>(Read(counts.sent_bytes)), MethodLabel(m)));
    seconds.metric.push_back(Histogram(counts.seconds, MethodLabel(m)));
    stalled.metric.push_back(Counter(static_cast<double>(Read(counts.stalled)), MethodLabel(m)));
  }
  for (MetricFamily* family : {&requests, &in_flight, &received, &sent, &seconds, &stalled}) {
    families.push_back(std::move(*family));
  }

  families.push_back(ByCode("tetrad_stream_requests_total",
                            "Requests of ExecuteStreams answered, by gRPC status code.",
                            stream_answers_));
  const auto refused = [this](Refused kind) {
    return static_cast<int64_t>(Read(refused_[static_cast<size_t>(kind)]));
  };
  families.push_back(Labelled("tetrad_refused_calls_total",
                              "Calls refused to a client, and answers in streams, by reason.",
                              MetricType::Counter, "reason",
                              {{"NO_CREDENTIAL", refused(Refused::kNoCredential)},
                               {"BAD_CREDENTIAL", refused(Refused::kBadCredential)},
                               {"NOT_ALLOWED", refused(Refused::kNotAllowed)},
                               {"NOT_YOURS", refused(Refused::kNotYours)}}));
  families.push_back(ByCode("tetrad_ticket_outcomes_total",
                            "Tickets that have their outcome, by gRPC status code.",
                            ticket_outcomes_));
  families.push_back(Labelled("tetrad_tickets", "Tickets, by what they wait for.",
                              MetricType::Gauge, "state",
                              {{"admitting", levels.tickets.admitting},
                               {"under_way", levels.tickets.under_way},
                               {"done", levels.tickets.done}}));
  families.push_back(Labelled("tetrad_open_streams", "Streams that clients hold open, by kind.",
                              MetricType::Gauge, "kind",
                              {{"attach", levels.attach_streams},
                               {"execute", levels.execute_streams},
                               {"health_watch", levels.health_watches}}));

  families.push_back({"tetrad_queue_seconds",
                      "Time of a launch from admission to the device.",
                      MetricType::Histogram,
                      {Histogram(queue_seconds_)}});
  families.push_back({"tetrad_launch_seconds",
                      "Time to hand a launch to the device.",
                      MetricType::Histogram,
                      {Histogram(launch_seconds_)}});
  families.push_back({"tetrad_device_seconds",
                      "Time of a launch on the device.",
                      MetricType::Histogram,
                      {Histogram(device_seconds_)}});

  families.push_back(
      {"tetrad_floor_seconds_total",
       "Device time that executions could not have beaten.",
       MetricType::Counter,
       {Counter(static_cast<double>(floor_ns_.load(std::memory_order_relaxed)) * 1e-9, {})}});
  MetricFamily executions{"tetrad_executions_total",
                          "Launches completed, by weights name; names beyond the first 64 are "
                          "\"other\".",
                          MetricType::Counter,
                          {}};
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, count] : executions_) {
      executions.metric.push_back(Counter(static_cast<double>(count), {{"weights", name}}));
    }
    executions.metric.push_back(
        Counter(static_cast<double>(other_executions_), {{"weights", "other"}}));
  }
  families.push_back(std::move(executions));

  const EngineStats& engine = levels.engine;
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const Level kLevels[] = {
      {"tetrad_serving", "1 while new requests are wanted, 0 while draining.", MetricType::Gauge,
       levels.serving ? 1.0 : 0.0},
      {"tetrad_launches_queued", "Launches admitted and not yet on the device.", MetricType::Gauge,
       number(engine.queued)},
      {"tetrad_launches_in_flight", "Launches admitted and not completed.", MetricType::Gauge,
       number(engine.in_flight)},
      {"tetrad_plan_cache_hits_total", "Plans found in the cache.", MetricType::Counter,
       number(engine.plan_hits)},
      {"tetrad_plan_cache_misses_total", "Plans built.", MetricType::Counter,
       number(engine.plan_misses)},
      {"tetrad_plan_cache_evictions_total", "Plans dropped from the cache.", MetricType::Counter,
       number(engine.plan_evictions)},
      {"tetrad_plans_cached", "Plans in the cache.", MetricType::Gauge,
       number(engine.plans_cached)},
      {"tetrad_plan_capacity", "Plans the cache may hold.", MetricType::Gauge,
       number(levels.plan_capacity)},
      {"tetrad_plan_handles", "Plan handles given out and not released.", MetricType::Gauge,
       number(engine.plan_handles)},
      {"tetrad_device_allocated_bytes", "Device memory allocated.", MetricType::Gauge,
       number(engine.memory.allocated_bytes)},
      {"tetrad_device_limit_bytes", "Device memory that may be allocated.", MetricType::Gauge,
       number(engine.memory.limit_bytes)},
      {"tetrad_device_allocations", "Allocations of device memory.", MetricType::Gauge,
       number(engine.memory.allocations)},
      {"tetrad_device_plans", "Plans with tables in device memory.", MetricType::Gauge,
       number(engine.execution.plans)},
      {"tetrad_device_table_bytes", "Device memory of plans' tables and scratch.",
       MetricType::Gauge, number(engine.execution.table_bytes)},
      {"tetrad_device_tensor_maps", "Tensor maps of live bindings.", MetricType::Gauge,
       number(engine.execution.tensor_maps)},
      {"tetrad_device_graphs", "Instantiated graphs, idle ones included.", MetricType::Gauge,
       number(engine.execution.graphs)},
      {"tetrad_device_graph_bytes", "Device memory of instantiated graphs.", MetricType::Gauge,
       number(engine.execution.graph_bytes)},
      {"tetrad_device_graph_limit_bytes", "Device memory that graphs may take.", MetricType::Gauge,
       number(engine.execution.graph_limit_bytes)},
      {"tetrad_device_captures_total", "Launches captured and graphs instantiated.",
       MetricType::Counter, number(engine.execution.captures)},
      {"tetrad_device_replay_proofs_total", "Proofs that a replay computes what a launch does.",
       MetricType::Counter, number(engine.execution.proofs)},
      {"tetrad_staging_bytes", "Device memory for inline operands.", MetricType::Gauge,
       number(engine.staging_bytes)},
      {"tetrad_staging_limit_bytes", "Device memory that inline operands may take.",
       MetricType::Gauge, number(levels.staging_limit_bytes)},
      {"tetrad_call_bytes", "Host memory of requests and replies of Execute calls.",
       MetricType::Gauge, number(levels.call_bytes)},
      {"tetrad_call_limit_bytes", "Host memory that those may take.", MetricType::Gauge,
       number(levels.call_limit_bytes)},
      {"tetrad_clients", "Clients that have calls under way.", MetricType::Gauge,
       number(levels.clients)},
      {"tetrad_client_calls_refused_total", "Calls refused because of client_calls.",
       MetricType::Counter, number(levels.refused_client_calls)},
      {"tetrad_ticket_bytes", "Host memory of requests and outcomes of tickets.", MetricType::Gauge,
       number(levels.ticket_bytes)},
      {"tetrad_ticket_limit_bytes", "Host memory that those may take.", MetricType::Gauge,
       number(levels.ticket_limit_bytes)},
      {"tetrad_ticket_repeats_total", "Submits that found a ticket under their key.",
       MetricType::Counter, number(levels.tickets.repeats)},
      {"tetrad_weights_bytes", "Device memory held by weights.", MetricType::Gauge,
       number(engine.weights_bytes)},
      {"tetrad_weights_versions", "Versions of weights, sealed or not.", MetricType::Gauge,
       number(engine.weights_versions)},
      {"tetrad_pool_reserved_bytes", "Device memory the pool has taken.", MetricType::Gauge,
       number(engine.pool.reserved_bytes)},
      {"tetrad_pool_largest_free_bytes", "The largest free range in the pool's chunks.",
       MetricType::Gauge, number(engine.pool.largest_free_bytes)},
      {"tetrad_pool_chunks", "Chunks of the pool.", MetricType::Gauge, number(engine.pool.chunks)},
      {"tetrad_leases_expired_total", "Leases whose grace time ran out.", MetricType::Counter,
       number(engine.leases.expired)},
      {"tetrad_blocks", "Blocks of clients.", MetricType::Gauge, number(engine.blocks)},
      {"tetrad_block_bytes", "Device memory of clients' blocks, freed ones still in use included.",
       MetricType::Gauge, number(engine.block_bytes)},
      {"tetrad_reclaimable", "What was let go of and whose device memory is not back yet.",
       MetricType::Gauge, number(engine.reclaimable)},
  };
  for (const Level& level : kLevels) {
    families.push_back(
        {level.name,
         level.help,
         level.type,
         {level.type == MetricType::Counter ? Counter(level.value) : Gauge(level.value)}});
  }
  families.push_back(Labelled("tetrad_files_refused",
                              "1 while files are refused as they are now and the old ones count.",
                              MetricType::Gauge, "files",
                              {{"access", levels.access_refused}, {"tls", levels.tls_refused}}));
  if (levels.certificate_expires != absl::InfiniteFuture()) {
    families.push_back({"tetrad_certificate_expiry_timestamp_seconds",
                        "When the certificate that is served expires; only with TLS.",
                        MetricType::Gauge,
                        {Gauge(number(absl::ToUnixSeconds(levels.certificate_expires)))}});
  }
  families.push_back(Labelled("tetrad_pool_bytes", "Memory of the pool, by what it is used for.",
                              MetricType::Gauge, "state",
                              {{"block", engine.pool.block_bytes},
                               {"whole", engine.pool.whole_bytes},
                               {"free", engine.pool.free_bytes},
                               {"unreturned", engine.pool.unreturned_bytes}}));
  families.push_back(Labelled("tetrad_leases", "Leases, by whether their client is attached.",
                              MetricType::Gauge, "state",
                              {{"attached", engine.leases.leases - engine.leases.detached},
                               {"detached", engine.leases.detached}}));
  MetricFamily launches{
      "tetrad_launches_total", "Launches ended, by what came of them.", MetricType::Counter, {}};
  for (size_t outcome = 0; outcome < kLaunchOutcomes; ++outcome) {
    launches.metric.push_back(Counter(number(engine.outcomes[outcome]),
                                      {{"outcome", std::string(kOutcomeNames[outcome])}}));
  }
  families.push_back(std::move(launches));
  AppendProcessMetrics(families);
  return families;
}

}  // namespace tetrad
