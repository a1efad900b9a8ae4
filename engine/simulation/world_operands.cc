// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The operands of a world's requests, and the output that must come of them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/simulation/product.h"
#include "engine/simulation/world.h"

namespace tetrad::simulation {
namespace {

template <typename T>
std::span<const std::byte> Bytes(const T& values) {
  return std::as_bytes(std::span(values.data(), values.size()));
}

}  // namespace

void World::MakeMValues(Request& request, bool good) {
  const Signature& s = catalogue_.shapes[request.shape].signature;
  const int32_t rows = static_cast<int32_t>(s.capacity_rows);
  if (s.m_source == MSource::kCounts) {
    for (size_t g = 0; g < s.groups.size(); ++g) {
      request.m_values.push_back(static_cast<int32_t>(random_.Below(rows + 1)));
    }
    if (!good) request.m_values.back() = random_.OneIn(2) ? -1 : rows + 1;
  } else if (s.m_source == MSource::kOffsets) {
    request.m_values.push_back(0);
    for (size_t g = 0; g < s.groups.size(); ++g) {
      const int32_t last = request.m_values.back();
      request.m_values.push_back(last + static_cast<int32_t>(random_.Below(rows - last + 1)));
    }
    if (!good) request.m_values.back() = random_.OneIn(2) ? -1 : rows + 1;
  }
}

void World::MakeOperands(Request& request) {
  const Shape& shape = catalogue_.shapes[request.shape];
  static constexpr float kAlphas[] = {1.0f, 2.0f, -0.5f};
  if (random_.OneIn(2)) {
    for (size_t g = 0; g < shape.signature.groups.size(); ++g) {
      request.alpha.push_back(kAlphas[random_.Below(3)]);
    }
  }
  const auto fill = [&](std::string& to, int64_t bytes) {
    to.resize(static_cast<size_t>(bytes));
    for (char& c : to) c = static_cast<char>(random_.Next());
  };
  if (!request.in_blocks) {
    fill(request.a, shape.wire.a_bytes);
    fill(request.a_scales, shape.wire.a_scale_bytes);
    if (request.a.size() >= sizeof(request.tag)) {
      request.tag = Mix(static_cast<uint64_t>(++tags_)) | 1;
      std::memcpy(request.a.data(), &request.tag, sizeof(request.tag));
    }
  }
  if (shape.signature.row_scale) {
    for (int64_t row = 0; row < shape.wire.rows; ++row) {
      request.row_scale.push_back(static_cast<float>(random_.Below(100)));
    }
  }
}

// In a way that is found before memory is touched.
void World::SpoilOperands(Request& request) {
  const Shape& shape = catalogue_.shapes[request.shape];
  request.bad = absl::StatusCode::kInvalidArgument;
  if (shape.signature.device_m() && random_.OneIn(2)) {
    request.m_values.clear();
    MakeMValues(request, false);
  } else if (!request.a.empty() && random_.OneIn(2)) {
    request.a.pop_back();
  } else {
    request.alpha.assign(shape.signature.groups.size(), 1.0f);
    request.alpha.back() = NAN;
  }
}

// Free of what other requests of the world use, so that it is known what must
// come out.
std::optional<World::Use> World::FindPlace(const Request& request, int64_t bytes, bool writing) {
  for (int tries = 0; tries < 3; ++tries) {
    const auto block = SomeBlock();
    if (!block) return std::nullopt;
    const int64_t room = static_cast<int64_t>(blocks_[*block].bytes.size()) - bytes;
    if (blocks_[*block].client != request.client || room < 0) continue;
    const int64_t begin = kOperandAlignment * random_.Below(room / kOperandAlignment + 1);
    const Use use{*block, begin, begin + bytes, writing};
    const bool own = std::any_of(request.uses.begin(), request.uses.end(), [&](const Use& u) {
      return u.block == use.block && u.begin < use.end && use.begin < u.end &&
             (u.written || writing);
    });
    if (!own && !Used(use.block, use.begin, use.end, writing)) return use;
  }
  return std::nullopt;
}

bool World::PlaceInBlocks(Request& request, BlockOperands& operands) {
  const Shape& shape = catalogue_.shapes[request.shape];
  const auto place = [&](BlockRange& range, int64_t bytes, bool writing) {
    if (bytes == 0) return true;
    const auto use = FindPlace(request, bytes, writing);
    if (!use) return false;
    request.uses.push_back(*use);
    range = {blocks_[use->block].name, use->begin, bytes};
    return true;
  };
  const auto write = [&](const Use& use, std::span<const std::byte> data) {
    Block& block = blocks_[use.block];
    if (!engine_->Write(Client(block.client), block.name, use.begin, data).ok()) return false;
    std::copy(data.begin(), data.end(), blocks_[use.block].bytes.begin() + use.begin);
    return true;
  };
  if (shape.layout.c_bytes < 8 || !place(operands.output, shape.layout.c_bytes, true)) return false;
  request.output = request.uses.back();
  if (!place(operands.activations, shape.layout.a_bytes, false)) return false;
  if (!place(operands.activation_scales, shape.layout.a_scale_bytes, false)) return false;
  if (shape.signature.row_scale && random_.OneIn(2)) {
    if (!place(operands.row_scale, shape.layout.rows * 4, false)) return false;
    request.row_scale.clear();
  }
  if (shape.signature.device_m() && random_.OneIn(2)) {
    // Read at launch, so not checked before.
    request.bad_counts = random_.OneIn(4);
    request.m_values.clear();
    MakeMValues(request, !request.bad_counts);
    // Written here, so nobody else may use it.
    if (!place(operands.m_values, shape.layout.m_values * 4, true)) return false;
    if (!write(request.uses.back(), Bytes(request.m_values))) return false;
    request.m_values.clear();
  }
  request.tag = Mix(static_cast<uint64_t>(++tags_)) | 1;
  if (!write(request.output, std::as_bytes(std::span(&request.tag, 1)))) return false;
  return std::all_of(request.uses.begin(), request.uses.end(),
                     [&](const Use& use) { return blocks_[use.block].named; });
}

void World::SpoilRange(Request& request, BlockOperands& operands) {
  BlockRange& range = random_.OneIn(2) ? operands.activations : operands.output;
  request.bad = absl::StatusCode::kInvalidArgument;
  switch (random_.Below(4)) {
    case 0:
      range.bytes -= 1;
      break;
    case 1:
      range.offset = 1 << 20;
      break;
    case 2:
      operands.output = operands.activations;
      break;  // too short, or the same memory
    case 3:
      for (const Block& block : blocks_) {
        if (block.named && block.client == request.client) continue;
        range.block = block.name;
        request.bad =
            block.named ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kAborted;
        return;
      }
      range.block = "block-0";
      break;
  }
}

std::vector<std::byte> World::Alphas(const Request& request) const {
  const Shape& shape = catalogue_.shapes[request.shape];
  const WeightsContent& content =
      catalogue_.families[request.version.family].contents[request.version.content];
  std::vector<float> alphas;
  for (size_t g = 0; g < shape.signature.groups.size(); ++g) {
    alphas.push_back((request.alpha.empty() ? 1.0f : request.alpha[g]) *
                     (content.alpha.empty() ? 1.0f : content.alpha[g]));
  }
  const auto bytes = Bytes(alphas);
  return {bytes.begin(), bytes.end()};
}

void World::ExpectInline(Request& request) {
  const Shape& shape = catalogue_.shapes[request.shape];
  const WeightsContent& content =
      catalogue_.families[request.version.family].contents[request.version.content];
  request.expected.resize(static_cast<size_t>(shape.wire.c_bytes));
  const std::vector<std::byte> alpha = Alphas(request);
  Product(shape.signature, shape.wire,
          {Bytes(request.a), Bytes(request.a_scales), content.codes, content.scales, alpha,
           Bytes(request.row_scale), Bytes(request.m_values)},
          request.expected);
}

void World::ExpectInBlocks(Request& request, const BlockOperands& operands) {
  const Shape& shape = catalogue_.shapes[request.shape];
  const WeightsContent& content =
      catalogue_.families[request.version.family].contents[request.version.content];
  const auto in = [&](const BlockRange& range, std::span<const std::byte> otherwise) {
    for (const Use& use : request.uses) {
      const Block& block = blocks_[use.block];
      if (range.block != block.name || range.offset != use.begin || range.bytes == 0) continue;
      return std::span<const std::byte>(block.bytes)
          .subspan(static_cast<size_t>(range.offset), static_cast<size_t>(range.bytes));
    }
    return otherwise;
  };
  const auto output = in(operands.output, {});
  request.expected.assign(output.begin(), output.end());
  const std::vector<std::byte> alpha = Alphas(request);
  Product(shape.signature, shape.layout,
          {in(operands.activations, {}), in(operands.activation_scales, {}), content.codes,
           content.scales, alpha, in(operands.row_scale, Bytes(request.row_scale)),
           in(operands.m_values, Bytes(request.m_values))},
          request.expected);
}

}  // namespace tetrad::simulation
