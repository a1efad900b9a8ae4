// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

#include "engine/binding_table.h"
#include "engine/bound_operands.h"
#include "engine/cuda/completion_poller.h"
#include "engine/cuda/context.h"
#include "engine/cuda/cuda_memory.h"
#include "engine/cuda/device_rates.h"
#include "engine/cuda/kernel_library.h"
#include "engine/cuda/launch_graphs.h"
#include "engine/cuda/own_memory.h"
#include "engine/cuda/plans_on_device.h"
#include "engine/cuda/ranges.h"
#include "engine/cuda/replay_proof.h"
#include "engine/cuda/transfers.h"
#include "engine/cuda/weights_packer.h"
#include "engine/support/error_detail.h"
#include "kernels/cuda/portable.h"

namespace tetrad::cuda {
namespace {

// Left to the driver and to others where the limit is not given, beside what the
// device itself may take.
constexpr int64_t kReserveBytes = int64_t{512} << 20;
constexpr int kLeastCapability = 80;

struct Binding {
  Binding(AllocationTable& memory, std::shared_ptr<const Plan> of)
      : plan(std::move(of)), operands(memory) {}
  const std::shared_ptr<const Plan> plan;
  std::shared_ptr<const PlanOnDevice> on_device;
  BoundOperands operands;
  std::unique_ptr<LaunchGraph> graph;
  OwnBlock scratch;    // of its launches, one at a time
  bool bound = false;  // to operands, since it was made
  // A change of the graph failed half way and could not be undone: not launched before it is set.
  bool torn = false;  // guarded by graph->launching
};

std::string UuidText(const CUuuid& uuid) {
  char text[41] = "GPU-";
  char* out = text + 4;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
    std::snprintf(out, 3, "%02x", static_cast<unsigned>(static_cast<uint8_t>(uuid.bytes[i])));
    out += 2;
  }
  return text;
}

absl::StatusOr<int> CapabilityOf(const CudaDriver& driver, CUdevice device) {
  int major = 0, minor = 0;
  TETRAD_RETURN_IF_ERROR(CudaStatus(
      driver.DeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
      "cuDeviceGetAttribute"));
  TETRAD_RETURN_IF_ERROR(CudaStatus(
      driver.DeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device),
      "cuDeviceGetAttribute"));
  return major * 10 + minor;
}

absl::StatusOr<DeviceInfo> Describe(const CudaDriver& driver, CUdevice device) {
  DeviceInfo info;
  CUuuid uuid;
  char name[256] = "";
  TETRAD_RETURN_IF_ERROR(CudaStatus(driver.DeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
  TETRAD_RETURN_IF_ERROR(
      CudaStatus(driver.DeviceGetName(name, sizeof(name), device), "cuDeviceGetName"));
  info.uuid = UuidText(uuid);
  info.name = name;
  TETRAD_ASSIGN_OR_RETURN(info.capability, CapabilityOf(driver, device));
  return info;
}

absl::StatusOr<std::vector<CUdevice>> Devices(const CudaDriver& driver) {
  int count = 0;
  TETRAD_RETURN_IF_ERROR(CudaStatus(driver.DeviceGetCount(&count), "cuDeviceGetCount"));
  std::vector<CUdevice> devices(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    TETRAD_RETURN_IF_ERROR(
        CudaStatus(driver.DeviceGet(&devices[static_cast<size_t>(i)], i), "cuDeviceGet"));
  }
  return devices;
}

absl::StatusOr<std::pair<CUdevice, DeviceInfo>> FindDevice(const CudaDriver& driver,
                                                           const std::string& uuid) {
  TETRAD_ASSIGN_OR_RETURN(const std::vector<CUdevice> devices, Devices(driver));
  std::string there;
  for (const CUdevice device : devices) {
    TETRAD_ASSIGN_OR_RETURN(DeviceInfo info, Describe(driver, device));
    const bool usable = info.capability >= kLeastCapability;
    if (usable && (uuid.empty() || uuid == info.uuid)) return std::pair{device, std::move(info)};
    absl::StrAppend(&there, there.empty() ? "" : ", ", info.uuid, " (", info.name, ", capability ",
                    info.capability / 10, ".", info.capability % 10, ")");
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no CUDA device ", uuid.empty() ? "of capability 8.0 or higher" : uuid,
                   "; there are: ", there.empty() ? "none" : there));
}

KernelTraits PortableTraits(const Kernel& kernel) {
  KernelTraits traits;
  traits.name = "cuda.portable";
  traits.tile = {.max_rows = kPortableTileRows,
                 .max_columns = kPortableTileColumns,
                 .row_granule = kPortableRowGranule,
                 .column_granule = kPortableColumnGranule,
                 .overhead_rows = 32};
  traits.ctas_per_multiprocessor =
      std::min(kPortableCtasPerMultiprocessor, kernel.ctas_per_multiprocessor);
  return traits;
}

KernelTraits HopperTraits() {
  KernelTraits traits;
  traits.name = "cuda.sm90";
  traits.packed_weights = true;
  // The coarsest of its tiles that many groups have; the rest is HopperSchedule's.
  traits.tile = {.max_rows = 128, .max_columns = sm90::kBlockRows};
  return traits;
}

// Of blocks that are within their allocations.
absl::Status CheckPlaces(const WeightsToPack& weights, const PackingBatches& batches) {
  const BlockRef &memory = weights.memory, &scratch = weights.scratch;
  if (weights.scales < batches.code_bytes() || weights.scales % kOperandAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights: scales from byte ", weights.scales, " on must be at a multiple of ",
                     kOperandAlignment, " behind ", batches.code_bytes(), " bytes of codes"));
  }
  if (memory.allocation == scratch.allocation && memory.offset < scratch.offset + scratch.bytes &&
      scratch.offset < memory.offset + memory.bytes) {
    return absl::InvalidArgumentError("scratch: it lies in the memory of the weights");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<DeviceInfo>> ListDevices(const CudaDriver& driver) {
  TETRAD_ASSIGN_OR_RETURN(const std::vector<CUdevice> devices, Devices(driver));
  std::vector<DeviceInfo> usable;
  for (const CUdevice device : devices) {
    TETRAD_ASSIGN_OR_RETURN(DeviceInfo info, Describe(driver, device));
    if (info.capability >= kLeastCapability) usable.push_back(std::move(info));
  }
  return usable;
}

class CudaDevice::Impl {
 public:
  Impl(std::unique_ptr<CudaContext> context, const Options& options)
      : options_(options), context_(std::move(context)) {}
  ~Impl();

  absl::Status Start(const DeviceInfo& info, std::function<void()> wake);
  absl::Status Bind(Binding& binding, const OperandBlocks& blocks);
  absl::Status Launch(uint32_t lane, BindingId id, uint64_t ticket);
  absl::StatusOr<GemmLaunch> LaunchOf(const Binding& binding, const BoundOperands& operands);
  absl::Status LaunchOn(CUstream stream, const Binding& binding);
  absl::Status WithBinding(BindingId id, absl::FunctionRef<absl::Status(Binding&)> use);

 private:
  friend class CudaDevice;
  struct Lane {
    CUstream stream = nullptr;
    std::mutex mutex;  // launches of a lane are made one after the other
  };
  absl::Status MakeLanes();
  absl::Status SetLimits(const DeviceInfo& info, int64_t free_bytes);
  void OnEnded(const CompletionPoller::Ended& ended);
  absl::Status Admit(BindingId id, Binding** binding);
  void Unadmit(BindingId id);

  const Options options_;
  DeviceLimits limits_;
  const std::unique_ptr<CudaContext> context_;
  std::unique_ptr<Transfers> transfers_;
  std::unique_ptr<CudaMemory> memory_;
  std::unique_ptr<OwnMemory> own_memory_;
  OwnBlock eager_state_;  // of launches without a graph; nobody reads it
  std::unique_ptr<KernelLibrary> library_;
  std::unique_ptr<WeightsPacker> packer_;  // null if weights are not packed
  std::unique_ptr<LaunchGraphs> graphs_;
  std::unique_ptr<ReplayProof> proof_;
  std::unique_ptr<PlansOnDevice> plans_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<int64_t> tensor_maps_{0};  // of live bindings
  mutable std::mutex mutex_;
  BindingTable<Binding> bindings_;       // guarded by mutex_
  int32_t in_flight_ = 0;                // completed and not polled included; guarded by mutex_
  std::vector<Completion> completions_;  // not yet polled; guarded by mutex_
  // Of completions_: who polls in a loop must not hold up the thread that adds.
  std::atomic<int32_t> ready_{0};
  std::unique_ptr<CompletionPoller> poller_;  // stops before the rest goes
};

absl::Status CudaDevice::Impl::MakeLanes() {
  int least = 0, greatest = 0;  // a greater priority is a smaller number
  TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*context_, CtxGetStreamPriorityRange, &least, &greatest));
  for (int32_t i = 0; i < options_.lanes; ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    TETRAD_RETURN_IF_ERROR(TETRAD_CUDA(*context_, StreamCreateWithPriority, &lanes_.back()->stream,
                                       CU_STREAM_NON_BLOCKING, i == 0 ? greatest : least));
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::Impl::SetLimits(const DeviceInfo& info, int64_t free_bytes) {
  limits_.uuid = info.uuid;
  limits_.name = info.name;
  limits_.capability = absl::StrCat("sm_", info.capability);
  TETRAD_ASSIGN_OR_RETURN(limits_.ctas,
                          context_->Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  const int64_t kept = kReserveBytes + options_.graph_bytes + options_.plan_bytes;
  limits_.memory_bytes =
      options_.memory_bytes > 0 ? options_.memory_bytes : std::max<int64_t>(free_bytes - kept, 0);
  limits_.lanes = options_.lanes;
  limits_.max_in_flight = options_.max_in_flight;
  return absl::OkStatus();
}

absl::Status CudaDevice::Impl::Start(const DeviceInfo& info, std::function<void()> wake) {
  TETRAD_ASSIGN_OR_RETURN(const int64_t free_bytes, context_->FreeBytes());
  TETRAD_RETURN_IF_ERROR(SetLimits(info, free_bytes));
  TETRAD_ASSIGN_OR_RETURN(const int64_t granule, CudaMemory::Granule(*context_));
  TETRAD_ASSIGN_OR_RETURN(transfers_, Transfers::Create(*context_, options_.copy_slots));
  memory_ = std::make_unique<CudaMemory>(*context_, *transfers_, limits_.memory_bytes, granule);
  own_memory_ = std::make_unique<OwnMemory>(*context_, *transfers_, options_.plan_bytes, granule);
  TETRAD_ASSIGN_OR_RETURN(eager_state_, own_memory_->Allocate(sizeof(LaunchState)));
  TETRAD_ASSIGN_OR_RETURN(library_,
                          KernelLibrary::Load(*context_, info.capability, options_.portable_only));
  if (library_->has_hopper()) {
    limits_.packs_weights = true;
    limits_.kernels.push_back(HopperTraits());
    TETRAD_ASSIGN_OR_RETURN(packer_, WeightsPacker::Create(*context_, *library_, limits_.ctas));
  }
  limits_.kernels.push_back(PortableTraits(library_->gemm(ActivationType::kNvfp4)));
  graphs_ = std::make_unique<LaunchGraphs>(
      *context_, *library_, *own_memory_,
      LaunchGraphs::Options{.depth = static_cast<uint32_t>(options_.max_in_flight),
                            .limit_bytes = options_.graph_bytes});
  TETRAD_ASSIGN_OR_RETURN(proof_,
                          ReplayProof::Create(*context_, *library_, *own_memory_, *graphs_));
  plans_ = std::make_unique<PlansOnDevice>(*library_, *own_memory_, *proof_, limits_.ctas);
  if (options_.measure_rates) {
    TETRAD_ASSIGN_OR_RETURN(limits_.rates,
                            MeasureRates(*context_, *library_, *memory_, limits_.ctas));
  }
  TETRAD_RETURN_IF_ERROR(MakeLanes());
  completions_.reserve(static_cast<size_t>(options_.max_in_flight));
  std::vector<CUstream> streams;
  for (const auto& lane : lanes_) streams.push_back(lane->stream);
  poller_ = std::make_unique<CompletionPoller>(
      *context_, streams, static_cast<uint32_t>(options_.max_in_flight),
      static_cast<uint32_t>(options_.max_in_flight),
      [this](const CompletionPoller::Ended& ended) { OnEnded(ended); }, std::move(wake));
  return context_->health();  // a wait in a destructor may have failed
}

CudaDevice::Impl::~Impl() {
  poller_.reset();
  const bool healthy = context_->Enter().ok();
  for (const auto& binding : bindings_.TakeAll()) graphs_->Return(std::move(binding->graph));
  if (!healthy) return;
  for (const auto& lane : lanes_) {
    if (lane->stream == nullptr) continue;
    context_->Synchronize(lane->stream).IgnoreError();
    context_->Release(context_->driver().StreamDestroy(lane->stream), "cuStreamDestroy");
  }
}

void CudaDevice::Impl::OnEnded(const CompletionPoller::Ended& ended) {
  std::lock_guard lock(mutex_);
  bindings_.EndLaunch(ended.launched.binding);
  completions_.push_back(
      {ended.launched.ticket, absl::StatusCode::kOk, ended.error_word, ended.device_ns});
  ready_.fetch_add(1, std::memory_order_release);
}

absl::StatusOr<GemmLaunch> CudaDevice::Impl::LaunchOf(const Binding& binding,
                                                      const BoundOperands& operands) {
  return binding.on_device->LaunchOf(*context_, operands.stack(), binding.scratch.address());
}

// Pins the operands, sets the graph's arguments to them and lets go of those the
// binding had. On error the binding is as before.
absl::Status CudaDevice::Impl::Bind(Binding& binding, const OperandBlocks& blocks) {
  BoundOperands fresh(memory_->table());
  TETRAD_RETURN_IF_ERROR(fresh.Pin(*binding.plan, blocks));
  const DeviceMProblem& stack = fresh.stack();
  if (binding.on_device == nullptr) {
    TETRAD_ASSIGN_OR_RETURN(binding.on_device, plans_->Get(binding.plan, stack.b, stack.b_scales));
  }
  if (binding.graph == nullptr) {
    TETRAD_ASSIGN_OR_RETURN(binding.graph, graphs_->Take(binding.on_device->kind()));
  }
  if (binding.scratch.bytes() == 0) {
    auto scratch = own_memory_->Allocate(binding.on_device->scratch_bytes());
    if (!scratch.ok()) {
      return WithPrefix(absl::StrCat("plan_device_bytes: a binding of this plan takes ",
                                     binding.on_device->scratch_bytes(),
                                     " bytes for prepared activations and lists of tiles: "),
                        scratch.status());
    }
    binding.scratch = *std::move(scratch);
  }
  TETRAD_ASSIGN_OR_RETURN(const GemmLaunch launch, LaunchOf(binding, fresh));
  const std::lock_guard launching(binding.graph->launching);
  absl::Status set = graphs_->SetLaunch(*binding.graph, launch);
  if (!set.ok()) {
    if (!binding.bound) return set;
    // Of several nodes the first may be of the new operands already.
    const auto before = LaunchOf(binding, binding.operands);
    binding.torn = !before.ok() || !graphs_->SetLaunch(*binding.graph, *before).ok();
    return set;
  }
  if (!binding.bound) tensor_maps_ += binding.on_device->tensor_maps();
  binding.bound = true;
  binding.torn = false;
  binding.operands.Swap(fresh);
  return absl::OkStatus();
}

absl::Status CudaDevice::Impl::Admit(BindingId id, Binding** binding) {
  std::lock_guard lock(mutex_);
  TETRAD_ASSIGN_OR_RETURN(*binding, bindings_.BeginLaunch(id));
  if (in_flight_ < options_.max_in_flight) {
    ++in_flight_;
    return absl::OkStatus();
  }
  bindings_.EndLaunch(bindings_.Index(id));
  return ReasonError(Reason::kQueueFull, absl::StrCat("max_in_flight: ", in_flight_,
                                                      " launches are under way, the limit"));
}

void CudaDevice::Impl::Unadmit(BindingId id) {
  std::lock_guard lock(mutex_);
  bindings_.EndLaunch(bindings_.Index(id));
  --in_flight_;
}

absl::Status CudaDevice::Impl::Launch(uint32_t lane_index, BindingId id, uint64_t ticket) {
  if (lane_index >= lanes_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("lane=", lane_index, " must be below ", lanes_.size()));
  }
  TETRAD_RETURN_IF_ERROR(context_->Enter());
  Binding* binding = nullptr;
  TETRAD_RETURN_IF_ERROR(Admit(id, &binding));
  TETRAD_CUDA_RANGE("launch");
  Lane& lane = *lanes_[lane_index];
  LaunchGraph& graph = *binding->graph;
  const std::lock_guard lane_lock(lane.mutex);
  // Also held so that the launches of a graph are numbered as they were made.
  const std::lock_guard graph_lock(graph.launching);
  absl::Status launched = absl::OkStatus();
  if (binding->torn) {
    const auto whole = LaunchOf(*binding, binding->operands);
    launched = whole.ok() ? graphs_->SetLaunch(graph, *whole) : whole.status();
    binding->torn = !launched.ok();
  }
  if (launched.ok()) launched = TETRAD_CUDA(*context_, GraphLaunch, graph.exec, lane.stream);
  if (!launched.ok()) {
    Unadmit(id);
    return launched;
  }
  poller_->Push(lane_index, {&graph, ++graph.launches, ticket, bindings_.Index(id)});
  return absl::OkStatus();
}

absl::Status CudaDevice::Impl::LaunchOn(CUstream stream, const Binding& binding) {
  TETRAD_ASSIGN_OR_RETURN(GemmLaunch launch, LaunchOf(binding, binding.operands));
  // Not the graph's, whose next launch would report what is wrong with this one.
  launch.SetState(reinterpret_cast<LaunchState*>(eager_state_.address()));
  return cuda::LaunchOn(*context_, stream, launch, /*overlaps=*/true);
}

// Calls `use` while nothing else uses the binding.
absl::Status CudaDevice::Impl::WithBinding(BindingId id,
                                           absl::FunctionRef<absl::Status(Binding&)> use) {
  TETRAD_RETURN_IF_ERROR(context_->Enter());
  Binding* binding;
  {
    std::lock_guard lock(mutex_);
    TETRAD_ASSIGN_OR_RETURN(binding, bindings_.BeginRebind(id));
  }
  absl::Status used = use(*binding);
  std::lock_guard lock(mutex_);
  bindings_.EndRebind(id);
  return used;
}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const CudaDriver& driver,
                                                               const Options& options,
                                                               std::function<void()> wake) {
  for (const auto& [name, value] :
       {std::pair{"max_in_flight", options.max_in_flight}, std::pair{"lanes", options.lanes},
        std::pair{"copy_slots", options.copy_slots}}) {
    if (value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(name, "=", value, " must be at least 1"));
    }
  }
  TETRAD_ASSIGN_OR_RETURN(const auto found, FindDevice(driver, options.uuid));
  TETRAD_ASSIGN_OR_RETURN(std::unique_ptr<CudaContext> context,
                          CudaContext::Create(driver, found.first, wake));
  auto impl = std::make_unique<Impl>(std::move(context), options);
  TETRAD_RETURN_IF_ERROR(impl->Start(found.second, std::move(wake)));
  return std::unique_ptr<CudaDevice>(new CudaDevice(std::move(impl)));
}

CudaDevice::CudaDevice(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CudaDevice::~CudaDevice() = default;

const DeviceLimits& CudaDevice::limits() const { return impl_->limits_; }
MemoryUse CudaDevice::memory_use() const { return impl_->memory_->use(); }
absl::Status CudaDevice::health() const { return impl_->context_->health(); }

ExecutionUse CudaDevice::execution_use() const {
  const PlansOnDevice::Stats plans = impl_->plans_->stats();
  const LaunchGraphs::Stats graphs = impl_->graphs_->stats();
  return {.plans = plans.plans,
          .table_bytes = impl_->own_memory_->bytes(),
          .tensor_maps = impl_->tensor_maps_,
          .graphs = graphs.graphs,
          .graph_bytes = graphs.bytes,
          .graph_limit_bytes = graphs.limit_bytes,
          .captures = graphs.captures,
          .proofs = plans.proofs};
}

absl::StatusOr<Allocation> CudaDevice::Allocate(int64_t bytes) {
  auto allocation = impl_->memory_->Allocate(bytes);
  if (allocation.ok() || !absl::IsResourceExhausted(allocation.status())) return allocation;
  // The limit is ours, or the driver has no more: what nobody uses may help then.
  const int64_t trimmed = impl_->own_memory_->Trim();
  return impl_->graphs_->ReleaseIdle() + trimmed > 0 ? impl_->memory_->Allocate(bytes) : allocation;
}

absl::Status CudaDevice::Free(AllocationId id) { return impl_->memory_->Free(id); }
absl::Status CudaDevice::Seal(AllocationId id) { return impl_->memory_->Seal(id); }
absl::StatusOr<UniqueFd> CudaDevice::Export(AllocationId id) { return impl_->memory_->Export(id); }
absl::StatusOr<Allocation> CudaDevice::Import(UniqueFd fd, const AllocationIdentity& identity,
                                              int64_t bytes, bool writable) {
  return impl_->memory_->Import(std::move(fd), identity, bytes, writable);
}
absl::Status CudaDevice::Write(AllocationId id, int64_t offset, std::span<const std::byte> data) {
  return impl_->memory_->Write(id, offset, data);
}
absl::Status CudaDevice::Fill(AllocationId id, int64_t offset, int64_t bytes, FillSource source) {
  return impl_->memory_->Fill(id, offset, bytes, source);
}
absl::Status CudaDevice::Read(AllocationId id, int64_t offset, std::span<std::byte> data) const {
  return impl_->memory_->Read(id, offset, data);
}
absl::Status CudaDevice::Clear(AllocationId id, int64_t offset, int64_t bytes) {
  return impl_->memory_->Clear(id, offset, bytes);
}

absl::Status CudaDevice::PackWeights(const WeightsToPack& weights) {
  if (impl_->packer_ == nullptr) {
    return ReasonError(Reason::kUnsupportedHere, "this device does not pack weights");
  }
  const PackingBatches batches(weights.groups, weights.scale_layout);
  BoundOperands pins(impl_->memory_->table());
  TETRAD_ASSIGN_OR_RETURN(
      const uint64_t memory,
      pins.PinOne("weights", weights.memory,
                  std::max(weights.scales + batches.scale_bytes(), batches.packed_bytes()), true));
  TETRAD_ASSIGN_OR_RETURN(const uint64_t scratch, pins.PinOne("scratch", weights.scratch,
                                                              batches.least_scratch_bytes(), true));
  TETRAD_RETURN_IF_ERROR(CheckPlaces(weights, batches));
  return impl_->packer_->Pack(batches, memory, weights.scales, scratch, weights.scratch.bytes);
}

absl::Status CudaDevice::MakeReady(const std::shared_ptr<const Plan>& plan, const BlockRef& b,
                                   const BlockRef& b_scales) {
  BoundOperands pins(impl_->memory_->table());
  TETRAD_ASSIGN_OR_RETURN(const uint64_t codes,
                          pins.PinOne("weights codes", b, WeightCodeBytes(plan->signature), false));
  TETRAD_ASSIGN_OR_RETURN(
      const uint64_t scales,
      pins.PinOne("weights scales", b_scales, WeightScaleBytes(plan->signature), false));
  return impl_->plans_
      ->Get(plan, reinterpret_cast<const uint8_t*>(codes), reinterpret_cast<const uint8_t*>(scales))
      .status();
}

absl::StatusOr<BindingId> CudaDevice::Bind(std::shared_ptr<const Plan> plan,
                                           const OperandBlocks& operands) {
  TETRAD_CUDA_RANGE("bind");
  TETRAD_RETURN_IF_ERROR(impl_->context_->Enter());
  auto binding = std::make_unique<Binding>(impl_->memory_->table(), std::move(plan));
  absl::Cleanup give_back = [&] {
    if (binding != nullptr && binding->graph != nullptr) {
      impl_->graphs_->Return(std::move(binding->graph));
    }
  };
  TETRAD_RETURN_IF_ERROR(impl_->Bind(*binding, operands));
  std::lock_guard lock(impl_->mutex_);
  return impl_->bindings_.Add(binding);
}

absl::Status CudaDevice::Rebind(BindingId id, const OperandBlocks& operands) {
  TETRAD_CUDA_RANGE("rebind");
  return impl_->WithBinding(id, [&](Binding& binding) { return impl_->Bind(binding, operands); });
}

absl::Status CudaDevice::Unbind(BindingId id) {
  std::unique_ptr<Binding> unbound;  // unpins its memory after the lock is gone
  {
    std::lock_guard lock(impl_->mutex_);
    TETRAD_ASSIGN_OR_RETURN(unbound, impl_->bindings_.Remove(id));
  }
  impl_->tensor_maps_ -= unbound->on_device->tensor_maps();
  impl_->graphs_->Return(std::move(unbound->graph));
  return absl::OkStatus();
}

absl::Status CudaDevice::Launch(LaneId lane, BindingId binding, uint64_t ticket) {
  return impl_->Launch(static_cast<uint32_t>(lane), binding, ticket);
}

size_t CudaDevice::Poll(std::span<Completion> out) {
  if (impl_->ready_.load(std::memory_order_acquire) == 0) return 0;
  std::lock_guard lock(impl_->mutex_);
  std::vector<Completion>& completions = impl_->completions_;
  const size_t count = std::min(out.size(), completions.size());
  std::copy_n(completions.begin(), count, out.begin());
  completions.erase(completions.begin(), completions.begin() + static_cast<ptrdiff_t>(count));
  impl_->in_flight_ -= static_cast<int32_t>(count);
  impl_->ready_.fetch_sub(static_cast<int32_t>(count), std::memory_order_relaxed);
  return count;
}

const CudaDriver& CudaDevice::driver() const { return impl_->context_->driver(); }
absl::Status CudaDevice::Enter() const { return impl_->context_->Enter(); }

absl::StatusOr<CudaDevice::BareLaunch> CudaDevice::BeginBareLaunches(BindingId id) {
  std::lock_guard lock(impl_->mutex_);
  TETRAD_ASSIGN_OR_RETURN(Binding* const binding, impl_->bindings_.BeginRebind(id));
  LaunchGraph& graph = *binding->graph;
  const std::lock_guard launching(graph.launching);
  return BareLaunch{graph.exec, impl_->lanes_.back()->stream, graph.records,
                    impl_->graphs_->depth(), graph.launches};
}

void CudaDevice::EndBareLaunches(BindingId id, uint64_t launches) {
  std::lock_guard lock(impl_->mutex_);
  const Binding* const binding = impl_->bindings_.Get(id);
  if (binding == nullptr) return;
  {
    const std::lock_guard launching(binding->graph->launching);
    binding->graph->launches += launches;
  }
  impl_->bindings_.EndRebind(id);
}

absl::Status CudaDevice::LaunchOn(CUstream stream, BindingId id) {
  return impl_->WithBinding(
      id, [&](const Binding& binding) { return impl_->LaunchOn(stream, binding); });
}

absl::Status CudaDevice::LaunchEagerly(BindingId id) {
  const CUstream stream = impl_->lanes_.back()->stream;
  return impl_->WithBinding(id, [&](const Binding& binding) {
    absl::Status launched = impl_->LaunchOn(stream, binding);
    // Also if only some of its kernels were launched.
    TETRAD_RETURN_IF_ERROR(impl_->context_->Synchronize(stream));
    return launched;
  });
}

}  // namespace tetrad::cuda
