// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/simulated_driver/sm90_operands.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/cpu/grouped_gemm.h"
#include "kernels/float16.h"
#include "kernels/nvfp4.h"

namespace tetrad::cuda::simulated {
namespace {

using sm90::PrepareArguments;
using sm90::PrepareGroup;
using sm90::WeightsStack;

bool Aligned(const void* pointer) { return Address(pointer) % kOperandAlignment == 0; }

void CheckStack(const WeightsStack& weights, View& view, const void* codes, const void* scales,
                const void* packed) {
  if (weights.groups < 0 || weights.n < 1 || weights.k < 1 || weights.k % kKMultiple != 0) {
    view.Refuse(absl::StrCat("weights of ", weights.groups, " x ", weights.n, " x ", weights.k));
  }
  if (weights.scale_layout != ScaleLayout::kLinear &&
      weights.scale_layout != ScaleLayout::kBlocked) {
    view.Refuse("weights whose scales have no plane");
  }
  if (!Aligned(codes) || Address(scales) % 2 != 0 || !Aligned(packed)) {
    view.Refuse("misaligned weights");
  }
}

int64_t AllCodes(const WeightsStack& w) { return w.groups * CodeBytes(w.n, w.k); }
int64_t AllScales(const WeightsStack& w) {
  return w.groups * ScalePlaneBytes(w.scale_layout, w.n, w.k);
}
int64_t AllPacked(const WeightsStack& w) { return w.groups * sm90::PackedBytes(w.n, w.k); }

// Rows of one group, wherever M came from.
struct Rows {
  const uint8_t* a = nullptr;
  const uint8_t* a_scales = nullptr;
  int64_t row = 0;  // of the tokens
  int32_t m = 0;
  int32_t k = 0;
};

class Prepare {
 public:
  Prepare(const PrepareArguments& arguments, View& view) : arguments_(arguments), view_(view) {}

  void Run() {
    if (LaunchState* const state = view_.Write(arguments_.state, 1);
        state != nullptr && arguments_.begins) {
      state->begun_ns = GlobalTimer();
    }
    if (!Aligned(arguments_.a) || !Aligned(arguments_.a_scales) || !Aligned(arguments_.tokens)) {
      view_.Refuse("misaligned activations");
    }
    if (arguments_.group_count < 0 || arguments_.rows < 0) view_.Refuse("a negative number");
    // The copy engine's strides are multiples of 16 bytes.
    if (arguments_.pitch < 0 || arguments_.pitch % 8 != 0) {
      view_.Refuse(absl::StrCat("tokens of pitch ", arguments_.pitch));
    }
    const bool nvfp4 = arguments_.a_type == ActivationType::kNvfp4;
    if (nvfp4 != (arguments_.a_scales != nullptr) && arguments_.rows > 0) {
      view_.Refuse("scales are there for NVFP4, and for nothing else");
    }
    if (!view_.ok()) return;
    const bool host = arguments_.m_source == MSource::kHost;
    for (const Rows& group : host ? HostGroups() : LiveGroups()) {
      if (group.m == 0) continue;
      if (group.k < 1 || group.k % kKMultiple != 0 || group.k > arguments_.pitch) {
        return view_.Refuse(absl::StrCat("k=", group.k, " of pitch ", arguments_.pitch));
      }
      for (int32_t row = 0; row < group.m && view_.ok(); ++row) PrepareRow(group, row);
    }
  }

 private:
  std::vector<Rows> HostGroups() {
    std::vector<Rows> all;
    const int32_t count = arguments_.group_count;
    const PrepareGroup* const groups = view_.Read(arguments_.groups, count);
    if (!view_.ok()) return all;
    int64_t row = 0;  // where the next group begins
    for (int32_t g = 0; g < count; ++g) {
      const int32_t end = g + 1 < count ? groups[g + 1].row : arguments_.rows;
      if (groups[g].row != row || end < row) {
        view_.Refuse(absl::StrCat("groups that do not ascend: group ", g, " has rows ",
                                  groups[g].row, " to ", end));
        return {};
      }
      if (end > row && groups[g].a % kOperandAlignment != 0) {
        view_.Refuse("misaligned activations of a group");
      }
      all.push_back({Plus(arguments_.a, groups[g].a), Plus(arguments_.a_scales, groups[g].a_scales),
                     row, static_cast<int32_t>(end - row), groups[g].k});
      row = end;
    }
    if (row != arguments_.rows) view_.Refuse(absl::StrCat("rows from ", row, " on of no group"));
    return all;
  }

  std::vector<Rows> LiveGroups() {
    DeviceMProblem problem;
    problem.m_source = arguments_.m_source;
    problem.groups = arguments_.group_count;
    problem.k = arguments_.k;
    problem.capacity_rows = arguments_.capacity_rows;
    const bool offsets = problem.m_source == MSource::kOffsets;
    problem.m_values = view_.Read(arguments_.m_values, problem.groups + (offsets ? 1 : 0));
    problem.a = arguments_.a;
    problem.a_scales = arguments_.a_scales;
    if (arguments_.groups != nullptr) view_.Refuse("a table of groups, and M on the device");
    if (problem.k < 1) view_.Refuse("live groups without K");
    if (!view_.ok()) return {};
    std::vector<GroupProblem> groups(static_cast<size_t>(problem.groups));
    uint32_t error = 0;  // for the GEMM to tell
    cpu::ResolveDeviceM(problem,
                        {.a_type = arguments_.a_type, .a_scale_layout = arguments_.a_scale_layout},
                        groups, &error);
    const int64_t row_bytes = ActivationBytes(arguments_.a_type, 1, problem.k);
    std::vector<Rows> all;
    for (const GroupProblem& group : groups) {
      if (group.m == 0) continue;
      all.push_back(
          {group.a, group.a_scales, (group.a - problem.a) / row_bytes, group.m, problem.k});
    }
    return all;
  }

  void PrepareRow(const Rows& group, int64_t row) {
    const int64_t k = group.k;
    const int64_t written = std::min<int64_t>(RoundUp(k, sm90::kBlockK), arguments_.pitch);
    uint16_t* const out =
        view_.Write(Plus(arguments_.tokens, (group.row + row) * arguments_.pitch * 2), written);
    const uint8_t* const from =
        view_.Read(Plus(group.a, ActivationBytes(arguments_.a_type, row, k)),
                   ActivationBytes(arguments_.a_type, 1, k));
    if (!view_.ok()) return;
    if (arguments_.a_type != ActivationType::kNvfp4) {
      std::memcpy(out, from, static_cast<size_t>(k * 2));
    } else {
      for (int64_t block = 0; block < k / kScaleBlock; ++block) {
        // One by one: what pads a blocked plane is not read.
        const int64_t at = ScaleOffset(arguments_.a_scale_layout, row, block, k);
        const uint8_t* const scale = view_.Read(Plus(group.a_scales, at), 1);
        if (scale == nullptr) return;
        const float factor = DecodeUe4m3(*scale);
        for (int64_t i = block * kScaleBlock; i < (block + 1) * kScaleBlock; ++i) {
          out[i] = EncodeFp16(DecodeE2m1(UnpackCode(from, i)) * factor);
        }
      }
    }
    std::fill(out + k, out + written, uint16_t{0});
  }

  const PrepareArguments& arguments_;
  View& view_;
};

}  // namespace

void RunPack(const sm90::PackArguments& arguments, View& view) {
  const WeightsStack& w = arguments.weights;
  CheckStack(w, view, arguments.codes, arguments.scales, arguments.packed);
  if (!view.ok()) return;
  const sm90::PackArguments here = {view.Read(arguments.codes, AllCodes(w)),
                                    view.Read(arguments.scales, AllScales(w)),
                                    view.Write(arguments.packed, AllPacked(w)), w};
  if (view.ok()) sm90::PackWeights(here);
}

void RunUnpack(const sm90::UnpackArguments& arguments, View& view) {
  const WeightsStack& w = arguments.weights;
  CheckStack(w, view, arguments.codes, arguments.scales, arguments.packed);
  if (!view.ok()) return;
  const sm90::UnpackArguments here = {view.Read(arguments.packed, AllPacked(w)),
                                      view.Write(arguments.codes, AllCodes(w)),
                                      view.Write(arguments.scales, AllScales(w)), w};
  if (view.ok()) sm90::UnpackWeights(here);
}

void RunPrepare(const PrepareArguments& arguments, View& view) { Prepare(arguments, view).Run(); }

}  // namespace tetrad::cuda::simulated
