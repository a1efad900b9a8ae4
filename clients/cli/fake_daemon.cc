// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/fake_daemon.h"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include <stdlib.h>

#include "absl/strings/str_cat.h"

#include "clients/cli/case_data.h"
#include "kernels/reference.h"

namespace tetrad::cli {
namespace {

constexpr char kDevice[] = "fake-0";

template <typename Enum, typename Wire>
Enum FromWire(Wire value) {  // 0, unspecified, is the first value, too
  return static_cast<Enum>(std::max(static_cast<int>(value) - 1, 0));
}

const uint8_t* Bytes(const std::string& text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}

}  // namespace

FakeDaemon::FakeDaemon(Fault fault) : fault_(fault) {
  char pattern[] = "/tmp/tetrad-fake-XXXXXX";
  folder_ = mkdtemp(pattern);
  endpoint_ = absl::StrCat("unix:", folder_, "/s");
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddListeningPort(endpoint_, grpc::InsecureServerCredentials());
  builder.RegisterService(static_cast<v1::Status::Service*>(this));
  builder.RegisterService(static_cast<v1::Weights::Service*>(this));
  builder.RegisterService(static_cast<v1::Gemm::Service*>(this));
  builder.RegisterService(static_cast<v1::Admin::Service*>(this));
  server_ = builder.BuildAndStart();
}

FakeDaemon::~FakeDaemon() {
  server_->Shutdown();
  std::filesystem::remove_all(folder_);
}

std::vector<std::string> FakeDaemon::weights() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, held] : held_) names.push_back(name);
  return names;
}

int FakeDaemon::executions() const {
  const std::lock_guard lock(mutex_);
  return executions_;
}

int FakeDaemon::plans_held() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(plans_.size());
}

std::string FakeDaemon::last_metadata(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? "" : found->second;
}

grpc::Status FakeDaemon::GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest*,
                                   v1::GetStatusResponse* response) {
  {
    const std::lock_guard lock(mutex_);
    metadata_.clear();
    for (const auto& [key, value] : context->client_metadata()) {
      metadata_.emplace(std::string(key.data(), key.size()),
                        std::string(value.data(), value.size()));
    }
  }
  response->set_version("fake");
  response->set_state("serving");
  response->set_max_inline_bytes(1 << 20);
  response->mutable_pool()->set_reserved_bytes(64 << 20);
  response->mutable_pool()->set_free_bytes(16 << 20);
  response->mutable_pool()->set_chunks(2);
  response->set_leases(3);
  response->set_detached_leases(1);
  response->set_blocks(7);
  response->set_block_bytes(1 << 20);
  v1::DeviceStatus& device = *response->add_devices();
  device.set_uuid(kDevice);
  device.set_name("reference");
  device.set_capability("cpu");
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Upload(grpc::ServerContext*, grpc::ServerReader<v1::UploadRequest>* reader,
                                v1::UploadResponse* response) {
  Held held;
  v1::UploadRequest request;
  while (reader->Read(&request)) {
    if (request.has_header()) {
      held.header = request.header();
      continue;
    }
    const v1::UploadChunk& chunk = request.chunk();
    std::string& operand = chunk.operand() == v1::WEIGHTS_OPERAND_CODES ? held.codes : held.scales;
    if (chunk.offset() != static_cast<int64_t>(operand.size())) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "the fake takes chunks in order"};
    }
    operand += chunk.data();
  }
  response->mutable_weights()->set_name(held.header.name());
  response->mutable_weights()->set_version(1);
  const std::lock_guard lock(mutex_);
  held_[held.header.name()] = std::move(held);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Load(grpc::ServerContext*, const v1::LoadRequest* request,
                              grpc::ServerWriter<v1::LoadProgress>* writer) {
  if (request->directory() == "absent") {
    return {grpc::StatusCode::NOT_FOUND, "directory absent: no checkpoint"};
  }
  v1::LoadProgress progress;
  progress.set_bytes_total(10);
  progress.set_bytes_done(5);
  writer->Write(progress);
  progress.set_bytes_done(10);
  progress.mutable_weights()->set_name(request->name());
  progress.mutable_weights()->set_version(1);
  progress.add_notes("pattern " + request->pattern());
  writer->Write(progress);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::List(grpc::ServerContext*, const v1::ListWeightsRequest*,
                              v1::ListWeightsResponse* response) {
  const std::lock_guard lock(mutex_);
  for (const auto& [name, held] : held_) {
    v1::WeightsInfo& info = *response->add_weights();
    info.set_name(name);
    info.set_version(1);
    info.set_sealed(true);
    info.set_group_count(std::max(held.header.group_count(), held.header.groups_size()));
    *info.mutable_groups() = held.header.groups();
    info.set_scale_layout(held.header.scale_layout());
    info.set_source("upload");
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Seal(grpc::ServerContext*, const v1::SealRequest* request,
                              v1::SealResponse* response) {
  const std::lock_guard lock(mutex_);
  if (request->version() != 1 || !held_.contains(request->name())) {
    return {grpc::StatusCode::NOT_FOUND, "no unsealed version of " + request->name()};
  }
  response->mutable_weights()->set_name(request->name());
  response->mutable_weights()->set_version(request->version());
  response->mutable_weights()->set_sealed(true);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Drop(grpc::ServerContext*, const v1::DropRequest* request,
                              v1::DropResponse* response) {
  const std::lock_guard lock(mutex_);
  response->set_dropped(static_cast<int>(held_.erase(request->weights())));
  if (response->dropped() == 0) {
    return {grpc::StatusCode::NOT_FOUND, "no weights " + request->weights()};
  }
  return grpc::Status::OK;
}

absl::StatusOr<GroupedCase> FakeDaemon::CaseOf(const v1::Signature& s) const {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(s.weights().substr(0, s.weights().find('@')));
  if (found == held_.end()) return absl::NotFoundError("no weights " + s.weights());
  const v1::UploadHeader& header = found->second.header;
  GroupedCase c;
  c.types.a_type = FromWire<ActivationType>(s.activation_type());
  c.types.c_type = FromWire<OutputType>(s.output_type());
  c.types.a_scale_layout = FromWire<ScaleLayout>(s.activation_scale_layout());
  c.types.b_scale_layout = FromWire<ScaleLayout>(header.scale_layout());
  c.types.c_layout = FromWire<OutputLayout>(s.output_layout());
  c.form = FromWire<GroupForm>(s.group_form());
  c.c_stride = s.output_stride();
  c.row_scale = s.row_scale();
  if (s.has_capacity()) {
    c.m_source = static_cast<MSource>(s.capacity().m_source());
    c.capacity_rows = s.capacity().rows();
  }
  const int groups = std::max(header.group_count(), header.groups_size());
  for (int g = 0; g < groups; ++g) {
    const v1::GroupDims& dims = header.groups(header.groups_size() == 1 ? 0 : g);
    c.groups.push_back({s.has_exact() ? s.exact().m(g) : 0, dims.n(), dims.k()});
  }
  return c;
}

grpc::Status FakeDaemon::Prepare(grpc::ServerContext*, const v1::PrepareRequest* request,
                                 v1::PrepareResponse* response) {
  if (fault_ == Fault::kPrepareRefused) {
    return {grpc::StatusCode::INVALID_ARGUMENT, "group 3: k=32 must be a multiple of 64"};
  }
  const absl::StatusOr<GroupedCase> c = CaseOf(request->signature());
  if (!c.ok()) return {grpc::StatusCode::NOT_FOUND, std::string(c.status().message())};
  const WireLayout layout = LayOutOnWire(*c);
  v1::PlanInfo& info = *response->mutable_info();
  info.set_kernel("fake.reference");
  info.set_device(kDevice);
  info.set_groups(static_cast<int32_t>(c->groups.size()));
  info.set_rows(c->rows());
  info.set_activation_bytes(layout.a_bytes + (fault_ == Fault::kWrongSizes ? 32 : 0));
  info.set_output_bytes(layout.c_bytes);
  info.set_activation_scale_bytes(layout.a_scale_bytes);
  if (c->m_source == MSource::kOffsets && c->types.a_scale_layout == ScaleLayout::kBlocked) {
    // The worst case: every row a group of its own.
    info.set_activation_scale_bytes(
        ScalePlaneBytes(ScaleLayout::kBlocked, c->capacity_rows * 128, c->groups[0].k));
  }
  info.mutable_floor()->set_floor_us(2);
  info.set_explanation("because it is fake");
  response->set_weights(
      request->signature().weights().substr(0, request->signature().weights().find('@')) + "@1");
  const std::lock_guard lock(mutex_);
  response->set_plan(absl::StrCat("plan-", next_plan_++));
  plans_[response->plan()] = request->signature();
  return grpc::Status::OK;
}

std::string FakeDaemon::Compute(const GroupedCase& c, const Held& weights,
                                const v1::InlineOperands& operands) const {
  const WireLayout layout = LayOutOnWire(c);
  const int64_t element = OutputElementBytes(c.types.c_type);
  std::string output(static_cast<size_t>(layout.c_bytes), '\0');
  const uint8_t* codes = Bytes(weights.codes);
  const uint8_t* scales = Bytes(weights.scales);
  for (size_t g = 0; g < c.groups.size(); ++g) {
    const CaseGroup& group = c.groups[g];
    const WireGroup& wire = layout.groups[g];
    const int index = static_cast<int>(g);
    const float alpha_a = operands.alpha().empty() ? 1 : operands.alpha(index);
    const float alpha_b = weights.header.alpha().empty() ? 1 : weights.header.alpha(index);
    const GroupProblem problem{
        .a = Bytes(operands.activations()) + wire.a,
        .a_scales = Bytes(operands.activation_scales()) + wire.a_scales,
        .b = codes,
        .b_scales = scales,
        .row_scale = c.row_scale ? operands.row_scale().data() + wire.row : nullptr,
        .c_stride = wire.c_stride,
        .m = group.m,
        .n = group.n,
        .k = group.k,
        .alpha = alpha_a * alpha_b};
    codes += CodeBytes(group.n, group.k);
    scales += ScalePlaneBytes(c.types.b_scale_layout, group.n, group.k);
    const bool last = g + 1 == c.groups.size();
    if (last && fault_ == Fault::kLastGroupDropped) break;
    const Tile all{index, 0, group.m, 0, group.n};
    const ReferenceBlock block = ComputeReference(c.types, problem, all, WithMagnitude::kNo);
    const int32_t columns = group.n - (last && fault_ == Fault::kLastColumnDropped ? 1 : 0);
    for (int64_t row = 0; row < group.m; ++row) {
      for (int64_t n = 0; n < columns; ++n) {
        const int64_t at = c.types.c_layout == OutputLayout::kRowMajor ? row * wire.c_stride + n
                                                                       : n * wire.c_stride + row;
        const uint32_t bits = block.bits[static_cast<size_t>(row * group.n + n)];
        std::memcpy(output.data() + wire.c + at * element, &bits, static_cast<size_t>(element));
      }
    }
  }
  if (fault_ == Fault::kGapWritten) {
    for (size_t i = 0; i < output.size(); ++i) {
      std::string probe(output.size(), '\0');
      probe[i] = 1;
      if (FindNonzeroGap(c, layout, probe) < 0) continue;
      output[i] = 1;
      break;
    }
  }
  return output;
}

grpc::Status FakeDaemon::Execute(grpc::ServerContext* context, const v1::ExecuteRequest* request,
                                 v1::ExecuteResponse* response) {
  if (fault_ == Fault::kExecuteFails) return {grpc::StatusCode::INTERNAL, "our bug"};
  if (fault_ == Fault::kDraining) return {grpc::StatusCode::UNAVAILABLE, "draining"};
  while (fault_ == Fault::kHangs && !context->IsCancelled()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  v1::Signature signature = request->signature();
  Held weights;
  int execution = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!request->plan().empty()) {
      const auto plan = plans_.find(request->plan());
      if (plan == plans_.end()) return {grpc::StatusCode::ABORTED, "stale plan"};
      signature = plan->second;
    }
    weights = held_[signature.weights().substr(0, signature.weights().find('@'))];
    execution = executions_++;
  }
  absl::StatusOr<GroupedCase> c = CaseOf(signature);
  if (!c.ok()) return {grpc::StatusCode::NOT_FOUND, std::string(c.status().message())};
  const v1::InlineOperands& operands = request->inline_operands();
  for (size_t g = 0; g < c->groups.size() && c->m_source != MSource::kHost; ++g) {
    const int i = static_cast<int>(g);
    c->groups[g].m = c->m_source == MSource::kCounts
                         ? operands.m_values(i)
                         : operands.m_values(i + 1) - operands.m_values(i);
  }
  std::string output = Compute(*c, weights, operands);
  if (fault_ == Fault::kShortReply) output.pop_back();
  if (fault_ == Fault::kWrongElement || (fault_ == Fault::kOtherBytesNextTime && execution > 0)) {
    output[output.size() / 2] ^= 0x10;
  }
  response->set_output(std::move(output));
  response->set_kernel("fake.reference");
  response->set_weights(signature.weights());
  response->set_floor_us(2);
  response->mutable_timings()->set_device_us(8);
  response->mutable_timings()->set_share(0.25);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Release(grpc::ServerContext*, const v1::ReleaseRequest* request,
                                 v1::ReleaseResponse*) {
  const std::lock_guard lock(mutex_);
  if (plans_.erase(request->plan()) == 0) return {grpc::StatusCode::ABORTED, "stale plan"};
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Drain(grpc::ServerContext*, const v1::DrainRequest*,
                               v1::DrainResponse* response) {
  response->set_lame_duck_seconds(5);
  response->set_drain_seconds(25);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::SetLogLevel(grpc::ServerContext*, const v1::SetLogLevelRequest* request,
                                     v1::SetLogLevelResponse* response) {
  const std::lock_guard lock(mutex_);
  response->set_previous(std::exchange(log_level_, request->level()));
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::EndLease(grpc::ServerContext*, const v1::EndLeaseRequest* request,
                                  v1::EndLeaseResponse* response) {
  if (request->lease() != "lease-1") return {grpc::StatusCode::NOT_FOUND, "no such lease"};
  response->set_client("token:someone");
  return grpc::Status::OK;
}

}  // namespace tetrad::cli
