// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/plan_on_device.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/tensor_map.h"

namespace tetrad::cuda {
namespace {

constexpr int64_t kTableSpacing = 256;
// CTAs of the prepare kernel on a multiprocessor; more bring nothing.
constexpr int64_t kPrepareCtas = 8;

std::vector<GroupEntry> GroupTable(const Plan& plan) {
  const Signature& signature = plan.signature;
  std::vector<GroupEntry> table(signature.groups.size());
  int64_t b = 0, b_scales = 0;
  for (size_t g = 0; g < table.size(); ++g) {
    const GroupShape& shape = signature.groups[g];
    const GroupOffsets& at = plan.layout.groups[g];
    table[g] = {.a = at.a,
                .a_scales = at.a_scales,
                .b = b,
                .b_scales = b_scales,
                .c = at.c,
                .row = at.row,
                .c_stride = at.c_stride,
                .m = shape.m,
                .n = shape.n,
                .k = shape.k};
    b += CodeBytes(shape.n, shape.k);
    b_scales += ScalePlaneBytes(signature.types.b_scale_layout, shape.n, shape.k);
  }
  return table;
}

// Tables one after the other in one block; At() is where the last one added lies.
class TableWriter {
 public:
  template <typename T>
  int64_t Add(std::span<const T> table) {
    const auto bytes = std::as_bytes(table);
    const int64_t at = bytes_;
    parts_.push_back({at, bytes});
    bytes_ += RoundUp(static_cast<int64_t>(bytes.size()), kTableSpacing);
    return at;
  }
  absl::StatusOr<OwnBlock> Write(OwnMemory& memory) const {
    TETRAD_ASSIGN_OR_RETURN(OwnBlock block, memory.Allocate(bytes_));
    for (const auto& [at, bytes] : parts_) {
      if (!bytes.empty()) TETRAD_RETURN_IF_ERROR(memory.Write(block, at, bytes));
    }
    return block;
  }

 private:
  std::vector<std::pair<int64_t, std::span<const std::byte>>> parts_;
  int64_t bytes_ = 0;
};

template <typename T>
const T* TableAt(const OwnBlock& block, int64_t at) {
  return reinterpret_cast<const T*>(block.address() + static_cast<CUdeviceptr>(at));
}

TensorMapSpec TokenMap(CUdeviceptr tokens, int64_t rows, int32_t pitch, int32_t width) {
  TensorMapSpec map;
  map.type = CU_TENSOR_MAP_DATA_TYPE_UINT16;
  map.rank = 2;
  map.address = tokens;
  map.dims = {static_cast<uint64_t>(pitch), static_cast<uint64_t>(rows)};
  map.strides = {static_cast<uint64_t>(pitch) * 2};
  map.box = {sm90::kBlockK, static_cast<uint32_t>(width)};
  map.swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  map.l2_promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
  return map;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PlanOnDevice>> PlanOnDevice::Place(
    const Plan& plan, const KernelLibrary& library, OwnMemory& memory, int32_t multiprocessors) {
  auto made = std::make_shared<PlanOnDevice>();
  made->multiprocessors_ = multiprocessors;
  if (plan.hopper.has_value()) {
    TETRAD_RETURN_IF_ERROR(made->PlaceHopper(plan, library, memory));
  } else {
    const ActivationType type = plan.signature.types.a_type;
    made->kind_ = static_cast<GraphKind>(type);
    made->gemm_ = &library.gemm(type);
    TETRAD_RETURN_IF_ERROR(made->PlacePortable(plan, memory));
  }
  return made;
}

absl::Status PlanOnDevice::PlacePortable(const Plan& plan, OwnMemory& memory) {
  const Signature& signature = plan.signature;
  portable_.capacity_rows = signature.capacity_rows;
  portable_.c_stride = plan.layout.c_stride;
  portable_.group_count = static_cast<int32_t>(signature.groups.size());
  portable_.n = signature.groups[0].n;
  portable_.k = signature.groups[0].k;
  portable_.types = signature.types;
  portable_.m_source = signature.m_source;
  if (signature.device_m()) {
    grid_ = static_cast<uint32_t>(multiprocessors_ * plan.ctas_per_multiprocessor);
    return absl::OkStatus();
  }
  const std::vector<GroupEntry> groups = GroupTable(plan);
  TableWriter writer;
  const int64_t groups_at = writer.Add(std::span(groups));
  const int64_t tiles_at = writer.Add(std::span(plan.schedule.tiles));
  const int64_t begins_at = writer.Add(std::span(plan.schedule.cta_begin));
  TETRAD_ASSIGN_OR_RETURN(tables_, writer.Write(memory));
  portable_.groups = TableAt<GroupEntry>(tables_, groups_at);
  portable_.tiles = TableAt<Tile>(tables_, tiles_at);
  portable_.cta_begin = TableAt<int32_t>(tables_, begins_at);
  grid_ = static_cast<uint32_t>(std::max(plan.schedule.ctas(), 1));
  return absl::OkStatus();
}

absl::Status PlanOnDevice::PlaceHopper(const Plan& plan, const KernelLibrary& library,
                                       OwnMemory& memory) {
  const Signature& signature = plan.signature;
  const HopperSchedule& schedule = *plan.hopper;
  kind_ = !schedule.prepared     ? GraphKind::kHopper
          : signature.device_m() ? GraphKind::kHopperPreparedLive
                                 : GraphKind::kHopperPrepared;
  instance_ = schedule.tiles.instance;
  gemm_ = &library.hopper_gemm(signature.types.a_type, *instance_);
  token_rows_ = schedule.rows;
  lists_at_ = RoundUp(schedule.token_bytes(), kTableSpacing);
  scratch_bytes_ = lists_at_ + schedule.list_bytes();
  if (kind_ == GraphKind::kHopperPreparedLive) {
    snapshot_ = &library.snapshot();
    value_count_ = static_cast<int32_t>(plan.layout.m_values);
    values_at_ = RoundUp(scratch_bytes_, kTableSpacing);
    scratch_bytes_ = values_at_ + int64_t{value_count_} * 4;
  }

  // A list that ends at once, for a CTA with nothing to do.
  static constexpr sm90::TileEntry kEnd{};
  const std::span<const sm90::TileEntry> tiles =
      schedule.tiles.ctas > 0 ? std::span(schedule.tiles.entries) : std::span(&kEnd, 1);
  TableWriter writer;
  const int64_t tiles_at = writer.Add(tiles);
  const int64_t prepare_at = writer.Add(std::span(schedule.prepare));
  const int64_t covers_at = writer.Add(std::span(schedule.covers));
  TETRAD_ASSIGN_OR_RETURN(tables_, writer.Write(memory));

  hopper_.types = signature.types;
  if (signature.types.a_type == ActivationType::kNvfp4) {
    hopper_.types.a_type = ActivationType::kFp16;
  }
  hopper_.tiles = TableAt<sm90::TileEntry>(tables_, tiles_at);
  hopper_.tiles_per_cta = std::max(schedule.tiles_per_cta, 1);
  hopper_.begins = !schedule.prepared;
  grid_ = static_cast<uint32_t>(std::max(schedule.tiles.ctas, 1));
  if (signature.device_m()) {
    grid_ = static_cast<uint32_t>(schedule.live_ctas);
    hopper_.live = {.covers = TableAt<uint32_t>(tables_, covers_at),
                    .capacity_rows = signature.capacity_rows,
                    .c_stride = plan.layout.c_stride,
                    .group_count = static_cast<int32_t>(signature.groups.size()),
                    .n = signature.groups[0].n,
                    .k = signature.groups[0].k,
                    .m_source = signature.m_source};
  }
  prepare_arguments_.pitch = schedule.pitch;
  if (!schedule.prepared) return absl::OkStatus();

  prepare_ = &library.prepare();
  prepare_grid_ = static_cast<uint32_t>(std::clamp<int64_t>(
      sm90::PrepareCtas(schedule.rows, schedule.pitch), 1, kPrepareCtas * multiprocessors_));
  if (!signature.device_m()) {
    prepare_arguments_.groups = TableAt<sm90::PrepareGroup>(tables_, prepare_at);
    prepare_arguments_.group_count = static_cast<int32_t>(schedule.prepare.size());
  } else {
    prepare_arguments_.group_count = static_cast<int32_t>(signature.groups.size());
  }
  prepare_arguments_.capacity_rows = signature.capacity_rows;
  prepare_arguments_.rows = static_cast<int32_t>(schedule.rows);
  prepare_arguments_.k = signature.groups[0].k;
  prepare_arguments_.a_type = signature.types.a_type;
  prepare_arguments_.a_scale_layout = signature.types.a_scale_layout;
  prepare_arguments_.m_source = signature.m_source;
  prepare_arguments_.begins = snapshot_ == nullptr;
  return absl::OkStatus();
}

absl::StatusOr<GemmLaunch> PlanOnDevice::LaunchOf(CudaContext& context, const DeviceMProblem& stack,
                                                  CUdeviceptr scratch) const {
  if (instance_ == nullptr) return PortableLaunch(stack);
  return HopperLaunch(context, stack, scratch);
}

GemmLaunch PlanOnDevice::PortableLaunch(const DeviceMProblem& stack) const {
  LaunchArguments arguments = portable_;
  arguments.a = stack.a;
  arguments.a_scales = stack.a_scales;
  arguments.b = stack.b;
  arguments.b_scales = stack.b_scales;
  arguments.c = static_cast<std::byte*>(stack.c);
  arguments.alpha = stack.alpha;
  arguments.row_scale = stack.row_scale;
  arguments.m_values = stack.m_values;
  GemmLaunch launch;
  launch.kind = kind_;
  launch.Add({.kernel = gemm_, .grid = grid_, .arguments = arguments});
  return launch;
}

absl::StatusOr<GemmLaunch> PlanOnDevice::HopperLaunch(CudaContext& context,
                                                      const DeviceMProblem& stack,
                                                      CUdeviceptr scratch) const {
  GemmLaunch launch;
  launch.kind = kind_;
  CUdeviceptr tokens = reinterpret_cast<CUdeviceptr>(stack.a);
  const int32_t* m_values = stack.m_values;
  if (snapshot_ != nullptr) {
    auto* const copy = reinterpret_cast<int32_t*>(scratch + static_cast<CUdeviceptr>(values_at_));
    launch.Add({.kernel = snapshot_,
                .arguments = sm90::SnapshotArguments{
                    .from = stack.m_values, .to = copy, .count = value_count_}});
    m_values = copy;
  }
  if (prepare_ != nullptr) {
    tokens = scratch;
    sm90::PrepareArguments arguments = prepare_arguments_;
    arguments.a = stack.a;
    arguments.a_scales = stack.a_scales;
    arguments.tokens = reinterpret_cast<uint16_t*>(scratch);
    arguments.m_values = m_values;
    launch.Add({.kernel = prepare_, .grid = prepare_grid_, .arguments = arguments});
  }
  sm90::GemmArguments arguments = hopper_;
  // Without rows there are no tiles, and no addresses of tokens.
  for (int32_t i = 0; i < sm90::kMaxWidths && token_rows_ > 0; ++i) {
    if (instance_->widths[i] == 0) break;
    const TensorMapSpec map =
        TokenMap(tokens, token_rows_, prepare_arguments_.pitch, instance_->widths[i]);
    TETRAD_RETURN_IF_ERROR(CheckTensorMap(map));
    TETRAD_RETURN_IF_ERROR(context.Check(EncodeChecked(context.driver(), map, arguments.tokens[i]),
                                         "cuTensorMapEncodeTiled"));
  }
  arguments.weights = stack.b;
  arguments.c = static_cast<std::byte*>(stack.c);
  arguments.alpha = stack.alpha;
  arguments.row_scale = stack.row_scale;
  arguments.live.m_values = m_values;
  arguments.live.lists =
      reinterpret_cast<sm90::TileEntry*>(scratch + static_cast<CUdeviceptr>(lists_at_));
  launch.Add({.kernel = gemm_, .grid = grid_, .arguments = arguments});
  return launch;
}

}  // namespace tetrad::cuda
