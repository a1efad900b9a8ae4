// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/simulated_driver/sm90_gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/cuda/simulated_driver/tensor_maps.h"
#include "kernels/aligned_buffer.h"
#include "kernels/cpu/grouped_gemm.h"
#include "kernels/sm90/live_tiles.h"
#include "kernels/sm90/pack.h"

namespace tetrad::cuda::simulated {
namespace {

using sm90::kBlockBytes;
using sm90::kBlockK;
using sm90::kBlockRows;
using sm90::kMaxWidths;
using sm90::TileEntry;

// Tiles of each width that cover a group's rows.
using Cover = std::array<int32_t, kMaxWidths>;

class Sm90Gemm {
 public:
  Sm90Gemm(const sm90::Instance& instance, ActivationType type,
           const sm90::GemmArguments& arguments, int64_t ctas, View& view)
      : instance_(instance), type_(type), arguments_(arguments), ctas_(ctas), view_(view) {}

  void Run() {
    if (arguments_.begins) {
      if (LaunchState* const state = view_.Write(arguments_.state, 1); state != nullptr) {
        state->begun_ns = GlobalTimer();
      }
    }
    if (arguments_.tiles_per_cta < 1) view_.Refuse("lists without an entry");
    const bool host = arguments_.live.m_source == MSource::kHost;
    if (view_.ok() && !host) FormLists();
    if (view_.ok()) RunLists(host ? arguments_.tiles : arguments_.live.lists);
  }
  std::byte* first_output() const { return first_output_; }

 private:
  struct Strips {
    std::vector<uint8_t> codes, scales;
  };

  int64_t TileColumns() const { return int64_t{kBlockRows} * instance_.strips; }
  int32_t WidthAt(int32_t which) const {
    return which >= 0 && which < kMaxWidths ? instance_.widths[which] : 0;
  }

  // Device-side M: tiles of the widest width first, over all groups, then those of the
  // next, dealt in turn.
  void FormLists() {
    const sm90::LiveM& live = arguments_.live;
    if (live.group_count < 0 || live.n < 1 || live.k < 1 || arguments_.types.a_type != type_) {
      return view_.Refuse("a live shape or type of tokens that the kernel does not take");
    }
    const std::vector<GroupProblem> groups = Resolve();
    std::vector<Cover> covers;
    for (const GroupProblem& group : groups) covers.push_back(CoverOf(group.m));
    TileEntry* const lists = view_.Write(live.lists, ctas_ * arguments_.tiles_per_cta);
    if (!view_.ok()) return;
    std::vector<int32_t> lengths(static_cast<size_t>(ctas_));
    int64_t tile = 0;
    for (int32_t which = kMaxWidths - 1; which >= 0; --which) {
      for (size_t g = 0; g < groups.size(); ++g) {
        int32_t first = 0;
        for (int32_t w = which + 1; w < kMaxWidths; ++w) first += covers[g][w] * WidthAt(w);
        for (int64_t column = 0; column < live.n; column += TileColumns()) {
          for (int32_t i = 0; i < covers[g][which]; ++i, ++tile) {
            const int64_t cta = tile % ctas_;
            int32_t& length = lengths[static_cast<size_t>(cta)];
            if (length + 1 >= arguments_.tiles_per_cta) {
              return view_.Refuse(absl::StrCat("lists of ", arguments_.tiles_per_cta,
                                               " entries are too short for the live rows"));
            }
            lists[cta * arguments_.tiles_per_cta + length++] =
                EntryOf(groups[g], g, which, first + i * WidthAt(which), column);
          }
        }
      }
    }
    for (int64_t cta = 0; cta < ctas_; ++cta) {
      lists[cta * arguments_.tiles_per_cta + lengths[static_cast<size_t>(cta)]] = TileEntry();
    }
  }

  // Groups with addresses of the device, `a` from the weights' on: for what row it is.
  std::vector<GroupProblem> Resolve() {
    const sm90::LiveM& live = arguments_.live;
    DeviceMProblem problem;
    problem.m_source = live.m_source;
    problem.groups = live.group_count;
    problem.n = live.n;
    problem.k = live.k;
    problem.capacity_rows = live.capacity_rows;
    const bool offsets = live.m_source == MSource::kOffsets;
    problem.m_values = view_.Read(live.m_values, live.group_count + (offsets ? 1 : 0));
    problem.a = problem.b = problem.b_scales = arguments_.weights;
    problem.c = arguments_.c;
    problem.c_stride = live.c_stride;
    LaunchState* const state = view_.Write(arguments_.state, 1);
    if (!view_.ok()) return {};
    std::vector<GroupProblem> groups(static_cast<size_t>(live.group_count));
    cpu::ResolveDeviceM(problem, arguments_.types, groups, &state->error_word);
    return groups;
  }

  Cover CoverOf(int32_t m) {
    Cover cover = {};
    if (!view_.ok() || m == 0) return cover;
    int32_t widest = kMaxWidths - 1;
    while (instance_.widths[widest] == 0) --widest;
    const int32_t width = instance_.widths[widest];
    const int32_t whole = sm90::WholeTiles(m, width);
    const uint32_t* const covers = view_.Read(arguments_.live.covers, sm90::kCoverRows + 1);
    if (covers == nullptr) return cover;
    const uint32_t word = covers[m - whole * width];
    int32_t rows = 0, least = 0;
    for (int32_t which = kMaxWidths - 1; which >= 0; --which) {
      cover[which] = static_cast<int32_t>(word >> (8 * which) & 0xFF);
      if (which == widest) cover[which] += whole;
      rows += cover[which] * instance_.widths[which];
      if (cover[which] > 0) least = instance_.widths[which];
    }
    if (rows < m || least == 0 || rows - least >= m) {
      view_.Refuse(
          absl::StrCat("a cover of ", rows, " rows for ", m, ", of tiles down to ", least));
    }
    return cover;
  }

  TileEntry EntryOf(const GroupProblem& group, size_t g, int32_t which, int32_t row,
                    int64_t column) const {
    const auto steps = static_cast<int32_t>(CeilDiv(group.k, kBlockK));
    const int64_t first = (group.a - arguments_.weights) / (int64_t{group.k} * 2);
    const int64_t block = static_cast<int64_t>(g) * sm90::PackedBlocks(group.n, group.k) +
                          column / kBlockRows * steps;
    const bool row_major = arguments_.types.c_layout == OutputLayout::kRowMajor;
    const int64_t element =
        row_major ? row * group.c_stride + column : column * group.c_stride + row;
    return {.block = static_cast<uint32_t>(block),
            .token = static_cast<int32_t>(first + row),
            .rows = std::min(WidthAt(which), group.m - row),
            .columns = static_cast<int32_t>(group.n - column),
            .steps = steps,
            .group = static_cast<int32_t>(g),
            .scale_row = static_cast<int32_t>(first + row),
            .width = which,
            .c = static_cast<std::byte*>(group.c) - arguments_.c +
                 element * OutputElementBytes(arguments_.types.c_type),
            .c_stride = group.c_stride};
  }

  void RunLists(const TileEntry* lists) {
    for (int64_t cta = 0; cta < ctas_; ++cta) {
      const int64_t begin = cta * arguments_.tiles_per_cta;
      for (int64_t i = 0;; ++i) {
        if (i == arguments_.tiles_per_cta) {
          return view_.Refuse(absl::StrCat("the list of CTA ", cta, " has no end"));
        }
        // One by one: what follows the end is not read.
        const TileEntry* const tile =
            view_.Read(Plus(lists, (begin + i) * int64_t{sizeof(TileEntry)}), 1);
        if (tile == nullptr) return;
        if (tile->width < 0) break;
        RunOne(*tile);
        if (!view_.ok()) return;
      }
    }
  }

  void RunOne(const TileEntry& tile) {
    const int32_t width = WidthAt(tile.width);
    if (width == 0 || tile.rows < 1 || tile.rows > width || tile.columns < 1 || tile.steps < 1) {
      return view_.Refuse(absl::StrCat("a tile that ", instance_.name, " does not take: width ",
                                       tile.width, " rows ", tile.rows, " columns ", tile.columns,
                                       " steps ", tile.steps));
    }
    if (arguments_.types.a_type != type_) return view_.Refuse("tokens of another type");
    const Strips* const strips = WeightsOf(tile);
    FetchTokens(tile, width);
    const float* const alpha =
        view_.Read(Plus(arguments_.alpha, tile.group * int64_t{sizeof(float)}), 1);
    if (!view_.ok()) return;
    // Padded with zeros to whole steps, as the device has it.
    const ProblemTypes types = {
        .a_type = type_, .c_type = arguments_.types.c_type, .c_layout = arguments_.types.c_layout};
    GroupProblem group;
    group.a = reinterpret_cast<const uint8_t*>(tokens_.data());
    group.b = strips->codes.data();
    group.b_scales = strips->scales.data();
    group.m = tile.rows;
    group.n = static_cast<int32_t>(std::min<int64_t>(tile.columns, TileColumns()));
    group.k = tile.steps * kBlockK;
    group.alpha = *alpha;
    group.c_stride = tile.c_stride;
    if (arguments_.row_scale != nullptr) {
      group.row_scale = view_.Read(
          Plus(arguments_.row_scale, tile.scale_row * int64_t{sizeof(float)}), tile.rows);
    }
    const int64_t element = OutputElementBytes(types.c_type);
    if ((Address(arguments_.c) + static_cast<CUdeviceptr>(tile.c)) %
            static_cast<CUdeviceptr>(element) !=
        0) {
      return view_.Refuse("a misaligned output");
    }
    std::byte* const c =
        view_.Write(Plus(arguments_.c, tile.c), OutputExtent(types, group) * element);
    group.c = c;
    if (!view_.ok()) return;
    cpu::RunTile(cpu::BestInstructionSet(), types, group, {0, 0, group.m, 0, group.n},
                 scratch_.bytes());
    if (first_output_ == nullptr) first_output_ = c;
  }

  // Of a tile's strips, unpacked once a launch.
  const Strips* WeightsOf(const TileEntry& tile) {
    const int32_t count = instance_.strips > 1 && tile.columns > kBlockRows ? 2 : 1;
    if (Address(arguments_.weights) % kOperandAlignment != 0) view_.Refuse("misaligned weights");
    const uint8_t* const packed =
        view_.Read(Plus(arguments_.weights, int64_t{tile.block} * kBlockBytes),
                   int64_t{count} * tile.steps * kBlockBytes);
    if (packed == nullptr) return nullptr;
    const auto [found, made] = strips_.try_emplace({tile.block, tile.steps, count});
    Strips& strips = found->second;
    if (!made) return &strips;
    const sm90::WeightsStack stack = {.n = count * kBlockRows, .k = tile.steps * kBlockK};
    strips.codes.resize(static_cast<size_t>(CodeBytes(stack.n, stack.k)));
    strips.scales.resize(
        static_cast<size_t>(ScalePlaneBytes(stack.scale_layout, stack.n, stack.k)));
    sm90::UnpackWeights({packed, strips.codes.data(), strips.scales.data(), stack});
    return &strips;
  }

  // The tile's boxes, as the copy engine fetches them: zeros beyond the tensor, and the
  // whole width whatever the tile's rows.
  void FetchTokens(const TileEntry& tile, int32_t width) {
    const std::optional<TensorMapSpec> map = MapOf(tile.width, width);
    if (!map.has_value() || !view_.ok()) return;
    const int64_t k = int64_t{tile.steps} * kBlockK;
    const int64_t live = std::min(k, static_cast<int64_t>(map->dims[0]));
    tokens_.assign(static_cast<size_t>(tile.rows * k), 0);
    for (int64_t i = 0; i < width; ++i) {
      const int64_t row = tile.token + i;
      if (row < 0 || row >= static_cast<int64_t>(map->dims[1])) continue;
      const CUdeviceptr at = map->address + static_cast<CUdeviceptr>(row) * map->strides[0];
      const uint16_t* const from = view_.Read(reinterpret_cast<const uint16_t*>(at), live);
      if (from == nullptr) return;
      if (i < tile.rows) std::copy_n(from, live, tokens_.begin() + i * k);
    }
  }

  std::optional<TensorMapSpec> MapOf(int32_t which, int32_t width) {
    std::optional<TensorMapSpec> map = DecodeMap(arguments_.tokens[which]);
    if (!map.has_value()) {
      view_.Refuse(absl::StrCat("what is no tensor map for width ", width));
      return map;
    }
    const bool wide = map->type == CU_TENSOR_MAP_DATA_TYPE_UINT16 ||
                      map->type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 ||
                      map->type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (!wide || map->rank != 2 || map->box[0] != kBlockK ||
        map->box[1] != static_cast<uint32_t>(width) || map->element_strides[0] != 1 ||
        map->element_strides[1] != 1 || map->interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
        map->swizzle != CU_TENSOR_MAP_SWIZZLE_128B ||
        map->oob_fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) {
      view_.Refuse(absl::StrCat("a tensor map that does not suit tokens of width ", width, ": ",
                                DescribeTensorMap(*map)));
    }
    return map;
  }

  const sm90::Instance& instance_;
  const ActivationType type_;
  const sm90::GemmArguments& arguments_;
  const int64_t ctas_;
  View& view_;
  std::map<std::tuple<uint32_t, int32_t, int32_t>, Strips> strips_;
  std::vector<uint16_t> tokens_;  // of the tile, [rows, steps * 64]
  std::byte* first_output_ = nullptr;
  const AlignedBuffer scratch_{cpu::kScratchBytes};
};

}  // namespace

std::byte* RunHopperGemm(const sm90::Instance& instance, ActivationType type,
                         const sm90::GemmArguments& arguments, int64_t ctas, View& view) {
  Sm90Gemm gemm(instance, type, arguments, ctas, view);
  gemm.Run();
  return gemm.first_output();
}

}  // namespace tetrad::cuda::simulated
