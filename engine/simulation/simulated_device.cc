// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/simulation/simulated_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/simulation/product.h"
#include "engine/support/status_macros.h"

namespace tetrad::simulation {
namespace {

// Coarser than what is asked for, as on real devices; fine enough that sums stay exact.
constexpr int64_t kGranularity = 256;

constexpr BlockRef OperandBlocks::*kOperands[] = {
    &OperandBlocks::a,         &OperandBlocks::a_scales, &OperandBlocks::b,
    &OperandBlocks::b_scales,  &OperandBlocks::c,        &OperandBlocks::alpha,
    &OperandBlocks::row_scale, &OperandBlocks::m_values};

uint64_t Tag(std::span<const std::byte> bytes) {
  uint64_t tag = 0;
  if (bytes.size() >= sizeof(tag)) std::memcpy(&tag, bytes.data(), sizeof(tag));
  return tag;
}

}  // namespace

SimulatedDevice::SimulatedDevice(const Options& options, World world) : world_(std::move(world)) {
  limits_.uuid = "simulated";
  limits_.name = "simulated";
  limits_.capability = "cpu";
  limits_.ctas = 2;
  limits_.memory_bytes = options.memory_bytes;
  limits_.lanes = options.lanes;
  limits_.max_in_flight = options.max_in_flight;
  limits_.rates = {.flops_per_second = 4e6, .read_bytes_per_second = 1e6};
  limits_.kernels.push_back({"simulated", {}});
}

SimulatedDevice::~SimulatedDevice() {
  if (abandoned_) return;
  if (!bindings_.empty()) {
    world_.misuse(absl::StrCat("the engine went and left ", bindings_.size(), " bindings"));
  }
  if (!memory_.empty()) {
    world_.misuse(absl::StrCat("the engine went and left ", memory_.size(), " allocations"));
  }
}

absl::Status SimulatedDevice::Misuse(absl::StatusCode code, std::string message) const {
  world_.misuse(message);
  return absl::Status(code, message);
}

MemoryUse SimulatedDevice::memory_use() const {
  return {allocated_bytes_, limits_.memory_bytes, static_cast<int64_t>(memory_.size())};
}

void SimulatedDevice::LoseDevice() {
  health_ = absl::InternalError("the simulated device is lost");
  world_.wake();
}

absl::StatusOr<Allocation> SimulatedDevice::Allocate(int64_t bytes) {
  if (abandoned_) return Misuse(absl::StatusCode::kInternal, "allocate: the device was given up");
  TETRAD_RETURN_IF_ERROR(health_);
  TETRAD_RETURN_IF_ERROR(world_.before(Call::kAllocate));
  bytes = RoundUp(std::max<int64_t>(bytes, 1), kGranularity);
  if (bytes > limits_.memory_bytes - allocated_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("device memory: ", bytes, " bytes wanted, ",
                                                     limits_.memory_bytes - allocated_bytes_,
                                                     " left"));
  }
  Allocation allocation{AllocationId{++last_id_}, {}, bytes};
  std::memcpy(allocation.identity.uuid.data(), &last_id_, sizeof(last_id_));
  memory_[last_id_].bytes.resize(static_cast<size_t>(bytes));
  allocated_bytes_ += bytes;
  return allocation;
}

absl::Status SimulatedDevice::Free(AllocationId id) {
  if (abandoned_) return Misuse(absl::StatusCode::kInternal, "free: the device was given up");
  TETRAD_RETURN_IF_ERROR(health_);
  TETRAD_RETURN_IF_ERROR(world_.before(Call::kFree));
  const auto at = memory_.find(static_cast<uint64_t>(id));
  if (at == memory_.end()) return Misuse(absl::StatusCode::kAborted, "free: a stale id");
  if (at->second.sealed && at->second.pins > 0) {
    return Misuse(absl::StatusCode::kFailedPrecondition, "free: a binding names these weights");
  }
  // An idle binding over what was a client's block: the pool tries again later.
  for (const Running& launch : running_) {
    for (const auto operand : kOperands) {
      const BlockRef& used = bindings_[launch.binding].operands.*operand;
      if (used.bytes > 0 && used.allocation == id) {
        return Misuse(absl::StatusCode::kFailedPrecondition, "free: a launch uses the memory");
      }
    }
  }
  if (at->second.pins > 0) return absl::FailedPreconditionError("free: a binding names the memory");
  allocated_bytes_ -= static_cast<int64_t>(at->second.bytes.size());
  memory_.erase(at);
  return absl::OkStatus();
}

absl::StatusOr<std::span<std::byte>> SimulatedDevice::Range(const char* call, const BlockRef& block,
                                                            bool writing) const {
  const auto at = memory_.find(static_cast<uint64_t>(block.allocation));
  if (at == memory_.end()) {
    return Misuse(absl::StatusCode::kAborted, absl::StrCat(call, ": a stale allocation"));
  }
  const int64_t size = static_cast<int64_t>(at->second.bytes.size());
  if (block.offset < 0 || block.bytes < 0 || block.offset > size ||
      block.bytes > size - block.offset) {
    return Misuse(absl::StatusCode::kInvalidArgument, absl::StrCat(call, ": out of range"));
  }
  if (writing && at->second.sealed) {
    return Misuse(absl::StatusCode::kFailedPrecondition, absl::StrCat(call, ": sealed memory"));
  }
  return std::span(at->second.bytes)
      .subspan(static_cast<size_t>(block.offset), static_cast<size_t>(block.bytes));
}

// Of what was checked when it was bound.
std::span<std::byte> SimulatedDevice::Bytes(const BlockRef& block) {
  if (block.bytes == 0) return {};
  auto bytes = Range("launch", block, false);
  return bytes.ok() ? *bytes : std::span<std::byte>();
}

absl::Status SimulatedDevice::Seal(AllocationId id) {
  TETRAD_RETURN_IF_ERROR(health_);
  TETRAD_RETURN_IF_ERROR(Range("seal", {id, 0, 0}, false).status());
  memory_[static_cast<uint64_t>(id)].sealed = true;
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> SimulatedDevice::Export(AllocationId) {
  return absl::UnimplementedError("not simulated");
}

absl::StatusOr<Allocation> SimulatedDevice::Import(UniqueFd, const AllocationIdentity&, int64_t,
                                                   bool) {
  return absl::UnimplementedError("not simulated");
}

absl::Status SimulatedDevice::Fill(AllocationId id, int64_t offset, int64_t bytes,
                                   FillSource source) {
  TETRAD_RETURN_IF_ERROR(health_);
  TETRAD_RETURN_IF_ERROR(world_.before(Call::kWrite));
  TETRAD_ASSIGN_OR_RETURN(const auto to, Range("fill", {id, offset, bytes}, true));
  // Pieces as small as they come: their borders lie anywhere.
  constexpr size_t kPieceBytes = 24;
  for (size_t done = 0; done < to.size(); done += kPieceBytes) {
    TETRAD_RETURN_IF_ERROR(source(to.subspan(done, std::min(kPieceBytes, to.size() - done))));
  }
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Write(AllocationId id, int64_t offset,
                                    std::span<const std::byte> data) {
  TETRAD_RETURN_IF_ERROR(health_);
  TETRAD_RETURN_IF_ERROR(world_.before(Call::kWrite));
  TETRAD_ASSIGN_OR_RETURN(const auto to,
                          Range("write", {id, offset, static_cast<int64_t>(data.size())}, true));
  std::copy(data.begin(), data.end(), to.begin());
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Read(AllocationId id, int64_t offset,
                                   std::span<std::byte> data) const {
  TETRAD_RETURN_IF_ERROR(health_);
  TETRAD_ASSIGN_OR_RETURN(const auto from,
                          Range("read", {id, offset, static_cast<int64_t>(data.size())}, false));
  std::copy(from.begin(), from.end(), data.begin());
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Clear(AllocationId id, int64_t offset, int64_t bytes) {
  TETRAD_RETURN_IF_ERROR(health_);
  TETRAD_RETURN_IF_ERROR(world_.before(Call::kClear));
  TETRAD_ASSIGN_OR_RETURN(const auto to, Range("clear", {id, offset, bytes}, true));
  std::fill(to.begin(), to.end(), std::byte{0});
  return absl::OkStatus();
}

absl::Status SimulatedDevice::CheckOperands(const Plan& plan, const OperandBlocks& o) const {
  const Signature& s = plan.signature;
  const struct {
    const BlockRef& block;
    int64_t want;
  } all[] = {{o.a, plan.layout.a_bytes},
             {o.a_scales, plan.layout.a_scale_bytes},
             {o.b, WeightCodeBytes(s)},
             {o.b_scales, WeightScaleBytes(s)},
             {o.c, plan.layout.c_bytes},
             {o.alpha, static_cast<int64_t>(s.groups.size()) * 4},
             {o.row_scale, s.row_scale ? plan.layout.rows * 4 : 0},
             {o.m_values, plan.layout.m_values * 4}};
  for (const auto& [block, want] : all) {
    if (want == 0) continue;
    if (block.bytes < want || block.offset % kOperandAlignment != 0) {
      return Misuse(absl::StatusCode::kInvalidArgument, "bind: an operand is short or misaligned");
    }
    TETRAD_RETURN_IF_ERROR(Range("bind", block, &block == &o.c).status());
  }
  return absl::OkStatus();
}

void SimulatedDevice::Pin(const OperandBlocks& operands, int change) {
  for (const auto operand : kOperands) {
    if ((operands.*operand).bytes == 0) continue;
    memory_[static_cast<uint64_t>((operands.*operand).allocation)].pins += change;
  }
}

absl::StatusOr<BindingId> SimulatedDevice::Bind(std::shared_ptr<const Plan> plan,
                                                const OperandBlocks& operands) {
  TETRAD_RETURN_IF_ERROR(health_);
  TETRAD_RETURN_IF_ERROR(world_.before(Call::kBind));
  TETRAD_RETURN_IF_ERROR(CheckOperands(*plan, operands));
  Pin(operands, 1);
  bindings_[++last_id_] = {std::move(plan), operands, 0};
  return BindingId{last_id_};
}

absl::StatusOr<SimulatedDevice::Binding*> SimulatedDevice::FindBinding(BindingId id) {
  const auto at = bindings_.find(static_cast<uint64_t>(id));
  if (at == bindings_.end()) return Misuse(absl::StatusCode::kAborted, "binding: a stale id");
  return &at->second;
}

absl::Status SimulatedDevice::Rebind(BindingId id, const OperandBlocks& operands) {
  TETRAD_RETURN_IF_ERROR(health_);
  TETRAD_RETURN_IF_ERROR(world_.before(Call::kRebind));
  TETRAD_ASSIGN_OR_RETURN(Binding* const binding, FindBinding(id));
  if (binding->launches > 0) {
    return Misuse(absl::StatusCode::kFailedPrecondition, "rebind: a launch uses the binding");
  }
  TETRAD_RETURN_IF_ERROR(CheckOperands(*binding->plan, operands));
  Pin(operands, 1);
  Pin(binding->operands, -1);
  binding->operands = operands;
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Unbind(BindingId id) {
  TETRAD_RETURN_IF_ERROR(health_);
  TETRAD_ASSIGN_OR_RETURN(Binding* const binding, FindBinding(id));
  if (binding->launches > 0) {
    return Misuse(absl::StatusCode::kFailedPrecondition, "unbind: a launch uses the binding");
  }
  Pin(binding->operands, -1);
  bindings_.erase(static_cast<uint64_t>(id));
  return absl::OkStatus();
}

absl::Status SimulatedDevice::Launch(LaneId lane, BindingId id, uint64_t ticket) {
  TETRAD_ASSIGN_OR_RETURN(Binding* const binding, FindBinding(id));
  HandOver hand_over{ticket, Tag(Bytes(binding->operands.a)), Tag(Bytes(binding->operands.c)),
                     health_, !running_.empty() || !completed_.empty()};
  if (hand_over.status.ok()) hand_over.status = world_.before(Call::kLaunch);
  if (hand_over.status.ok() && running_.size() >= static_cast<size_t>(limits_.max_in_flight)) {
    hand_over.status = absl::ResourceExhaustedError("max_in_flight");
  }
  if (static_cast<int32_t>(lane) >= limits_.lanes) {
    hand_over.status = Misuse(absl::StatusCode::kInvalidArgument, "launch: no such lane");
  }
  world_.handed_over(hand_over);
  if (!hand_over.status.ok()) return hand_over.status;
  ++binding->launches;
  running_.push_back({ticket, lane, static_cast<uint64_t>(id)});
  return absl::OkStatus();
}

bool SimulatedDevice::CanComplete(size_t index) const {
  if (running_[index].lost) return false;
  for (size_t i = 0; i < index; ++i) {
    if (running_[i].lane == running_[index].lane) return false;
  }
  return true;
}

void SimulatedDevice::Complete(size_t index, absl::StatusCode code) {
  const Running launch = running_[index];
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
  Binding& binding = bindings_[launch.binding];
  --binding.launches;
  const OperandBlocks& o = binding.operands;
  Completion completion{.ticket = launch.ticket, .code = code, .device_ns = 1000};
  const std::span<std::byte> c = Bytes(o.c);
  if (code == absl::StatusCode::kOk) {
    completion.error_word = Product(binding.plan->signature, binding.plan->layout,
                                    {Bytes(o.a), Bytes(o.a_scales), Bytes(o.b), Bytes(o.b_scales),
                                     Bytes(o.alpha), Bytes(o.row_scale), Bytes(o.m_values)},
                                    c);
  } else {
    std::fill(c.begin(), c.end(), std::byte{0xEE});
  }
  if (lost()) return;  // it may still have run, but never tells
  completed_.push_back(completion);
  world_.wake();
}

size_t SimulatedDevice::Poll(std::span<Completion> out) {
  const size_t count = std::min(out.size(), completed_.size());
  std::copy_n(completed_.begin(), count, out.begin());
  completed_.erase(completed_.begin(), completed_.begin() + static_cast<ptrdiff_t>(count));
  return count;
}

}  // namespace tetrad::simulation
