// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/simulated_driver/portable_gemm.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/aligned_buffer.h"
#include "kernels/cpu/grouped_gemm.h"
#include "kernels/cuda/portable.h"

namespace tetrad::cuda::simulated {
namespace {

// `group` with device addresses, to one with host addresses.
GroupProblem OnHost(View& view, const ProblemTypes& types, const GroupProblem& group) {
  GroupProblem result = group;
  result.a = view.Read(group.a, ActivationBytes(types.a_type, group.m, group.k));
  if (types.a_type == ActivationType::kNvfp4) {
    result.a_scales =
        view.Read(group.a_scales, ScalePlaneBytes(types.a_scale_layout, group.m, group.k));
  }
  result.b = view.Read(group.b, CodeBytes(group.n, group.k));
  result.b_scales =
      view.Read(group.b_scales, ScalePlaneBytes(types.b_scale_layout, group.n, group.k));
  if (group.row_scale != nullptr) result.row_scale = view.Read(group.row_scale, group.m);
  result.c = view.Write(group.c, OutputExtent(types, group) * OutputElementBytes(types.c_type));
  return result;
}

GroupProblem FormGroup(const LaunchArguments& arguments, const GroupEntry& entry, float alpha) {
  GroupProblem group;
  group.a = Plus(arguments.a, entry.a);
  group.a_scales = Plus(arguments.a_scales, entry.a_scales);
  group.b = Plus(arguments.b, entry.b);
  group.b_scales = Plus(arguments.b_scales, entry.b_scales);
  group.c = Plus(arguments.c, entry.c);
  if (arguments.row_scale != nullptr) {
    group.row_scale = Plus(arguments.row_scale, entry.row * int64_t{sizeof(float)});
  }
  group.c_stride = entry.c_stride;
  group.m = entry.m;
  group.n = entry.n;
  group.k = entry.k;
  group.alpha = alpha;
  return group;
}

class Gemm {
 public:
  Gemm(const LaunchArguments& arguments, View& view) : arguments_(arguments), view_(view) {}

  void Run(int64_t ctas) {
    if (LaunchState* const state = view_.Write(arguments_.state, 1); state != nullptr) {
      state->begun_ns = GlobalTimer();
    }
    if (arguments_.group_count < 0) return view_.Refuse("a negative number of groups");
    groups_.resize(static_cast<size_t>(arguments_.group_count));
    if (arguments_.m_source == MSource::kHost) {
      RunTiles(ctas);
    } else {
      RunLiveGroups();
    }
  }
  // The first byte that was written, if any.
  std::byte* first_output() const { return first_output_; }

 private:
  void RunTiles(int64_t ctas) {
    const int32_t* const begin = view_.Read(arguments_.cta_begin, ctas + 1);
    if (begin == nullptr) return;
    for (int64_t cta = 0; cta < ctas; ++cta) {
      for (int32_t at = begin[cta]; at < begin[cta + 1]; ++at) {
        // One by one: what a table of no tiles points to is not read.
        const Tile* const tile = view_.Read(arguments_.tiles + at, 1);
        if (tile == nullptr) return;
        if (tile->group < 0 || tile->group >= arguments_.group_count) {
          return view_.Refuse(absl::StrCat("a tile of group ", tile->group));
        }
        FormOnce(tile->group);
        RunOne(*tile);
        if (!view_.ok()) return;
      }
    }
  }

  void FormOnce(int32_t g) {
    GroupProblem& group = groups_[static_cast<size_t>(g)];
    if (group.n != 0) return;
    const GroupEntry* const entry = view_.Read(arguments_.groups + g, 1);
    const float* const alpha = view_.Read(arguments_.alpha + g, 1);
    if (!view_.ok()) return;
    group = OnHost(view_, arguments_.types, FormGroup(arguments_, *entry, *alpha));
  }

  void RunLiveGroups() {
    DeviceMProblem problem;
    problem.m_source = arguments_.m_source;
    problem.groups = arguments_.group_count;
    problem.n = arguments_.n;
    problem.k = arguments_.k;
    problem.capacity_rows = arguments_.capacity_rows;
    const bool offsets = problem.m_source == MSource::kOffsets;
    problem.m_values = view_.Read(arguments_.m_values, problem.groups + (offsets ? 1 : 0));
    problem.alpha = view_.Read(arguments_.alpha, problem.groups);
    problem.a = arguments_.a;
    problem.a_scales = arguments_.a_scales;
    problem.b = arguments_.b;
    problem.b_scales = arguments_.b_scales;
    problem.c = arguments_.c;
    problem.row_scale = arguments_.row_scale;
    problem.c_stride = arguments_.c_stride;
    if (!view_.ok()) return;
    uint32_t error = 0;
    cpu::ResolveDeviceM(problem, arguments_.types, groups_, &error);
    if (LaunchState* const state = view_.Write(arguments_.state, 1); state != nullptr) {
      state->error_word |= error;
    }
    for (size_t g = 0; g < groups_.size() && view_.ok(); ++g) {
      if (groups_[g].m == 0) continue;
      groups_[g] = OnHost(view_, arguments_.types, groups_[g]);
      for (int32_t row = 0; row < groups_[g].m && view_.ok(); row += kPortableTileRows) {
        for (int32_t column = 0; column < groups_[g].n; column += kPortableTileColumns) {
          RunOne({static_cast<int32_t>(g), row, std::min(kPortableTileRows, groups_[g].m - row),
                  column, std::min(kPortableTileColumns, groups_[g].n - column)});
        }
      }
    }
  }

  void RunOne(const Tile& tile) {
    if (!view_.ok()) return;
    const GroupProblem& group = groups_[static_cast<size_t>(tile.group)];
    if (tile.row < 0 || tile.rows < 1 || tile.rows > kPortableTileRows || tile.column < 0 ||
        tile.columns < 1 || tile.columns > kPortableTileColumns) {
      return view_.Refuse("a tile that the kernel does not take");
    }
    cpu::RunTile(cpu::BestInstructionSet(), arguments_.types, group, tile, scratch_.bytes());
    if (first_output_ == nullptr) first_output_ = static_cast<std::byte*>(group.c);
  }

  const LaunchArguments& arguments_;
  View& view_;
  std::vector<GroupProblem> groups_;  // with host addresses once formed
  std::byte* first_output_ = nullptr;
  const AlignedBuffer scratch_{cpu::kScratchBytes};
};

}  // namespace

std::byte* RunPortableGemm(const LaunchArguments& arguments, int64_t ctas, View& view) {
  Gemm gemm(arguments, view);
  gemm.Run(ctas);
  return gemm.first_output();
}

}  // namespace tetrad::cuda::simulated
