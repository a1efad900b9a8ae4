// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: any signature, in two ways. By its fields, enumerations beyond their ends included:
// what is canonical stays so, its operands lie within their sizes and the limits, and its plan
// covers every element of the output once. And as a client's request over weights that an engine
// on a CPU device has: it is prepared and executed, or refused with a reason.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cpu_device.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/sample_request.h"
#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr SignatureLimits kLimits{.max_groups = 8, .max_operand_bytes = 1 << 20};

// Values out of the input; zero when it is at its end.
class Reader {
 public:
  Reader(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t Byte() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  // Mostly small, at times anything.
  int64_t Number() {
    const uint8_t kind = Byte();
    if (kind < 128) return kind;
    if (kind < 192) return int64_t{32} * (kind - 128);
    if (kind < 224) return (kind - 192) * 256 + Byte();
    int64_t value = 0;
    for (int i = 0; i < 8; ++i)
      value = static_cast<int64_t>(static_cast<uint64_t>(value) << 8 | Byte());
    return value;
  }
  int32_t Number32() { return static_cast<int32_t>(Number()); }
  // One of the enumeration's, or a number beyond.
  template <typename Enum>
  Enum Value(int count) {
    const uint8_t byte = Byte();
    return static_cast<Enum>(byte >= 250 ? byte : byte % count);
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

void CheckRefusal(const absl::Status& status) {
  TETRAD_CHECK(absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
               absl::IsNotFound(status) || absl::IsResourceExhausted(status));
  TETRAD_CHECK(!status.message().empty() && status.message().size() < 1024);
}

void CheckLayout(const Signature& signature, int64_t alignment) {
  const OperandLayout layout = LayOut(signature, alignment);
  for (const int64_t bytes : {layout.a_bytes, layout.a_scale_bytes, layout.c_bytes}) {
    TETRAD_CHECK(bytes >= 0 && bytes <= kLimits.max_operand_bytes);
  }
  TETRAD_CHECK(layout.rows == signature.rows());
  if (signature.device_m()) return;
  TETRAD_CHECK(layout.groups.size() == signature.groups.size());
  const bool separate = signature.form == GroupForm::kSeparate;
  GroupOffsets last;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const GroupOffsets& at = layout.groups[g];
    const GroupShape& shape = signature.groups[g];
    TETRAD_CHECK(at.a >= last.a && at.a_scales >= last.a_scales && at.row >= last.row);
    TETRAD_CHECK(at.a + ActivationBytes(signature.types.a_type, shape.m, shape.k) <=
                 layout.a_bytes);
    TETRAD_CHECK(at.row + shape.m <= layout.rows);
    if (separate && shape.m > 0) {
      TETRAD_CHECK(at.a % alignment == 0 && at.c % alignment == 0);
      const bool row_major = signature.types.c_layout == OutputLayout::kRowMajor;
      const int64_t lines = row_major ? shape.m : shape.n;
      const int64_t length = row_major ? shape.n : shape.m;
      const int64_t elements = (lines - 1) * at.c_stride + length;
      TETRAD_CHECK(at.c_stride >= length);
      TETRAD_CHECK(at.c + elements * OutputElementBytes(signature.types.c_type) <= layout.c_bytes);
    }
    last = at;
  }
}

// Every element in one tile: none overlap, and together they are as many.
void CheckTiles(const Plan& plan) {
  int64_t tiled = 0, wanted = 0;
  std::vector<Tile> tiles = plan.schedule.tiles;
  for (const Tile& tile : tiles) {
    const GroupShape& shape = plan.signature.groups[static_cast<size_t>(tile.group)];
    TETRAD_CHECK(tile.rows > 0 && tile.columns > 0 && tile.row >= 0 && tile.column >= 0);
    TETRAD_CHECK(tile.row + tile.rows <= shape.m && tile.column + tile.columns <= shape.n);
    tiled += int64_t{tile.rows} * tile.columns;
  }
  for (const GroupShape& shape : plan.signature.groups) wanted += int64_t{shape.m} * shape.n;
  TETRAD_CHECK(tiled == wanted);
  constexpr size_t kPairs = 256;  // of more the sum must do
  for (size_t i = 0; i < tiles.size() && tiles.size() <= kPairs; ++i) {
    for (size_t j = i + 1; j < tiles.size(); ++j) {
      const Tile& a = tiles[i];
      const Tile& b = tiles[j];
      TETRAD_CHECK(a.group != b.group || a.row + a.rows <= b.row || b.row + b.rows <= a.row ||
                   a.column + a.columns <= b.column || b.column + b.columns <= a.column);
    }
  }
  TETRAD_CHECK(plan.schedule.longest_first.size() == tiles.size());
  TETRAD_CHECK(plan.schedule.cta_begin.front() == 0);
  TETRAD_CHECK(plan.schedule.cta_begin.back() == static_cast<int32_t>(tiles.size()));
  TETRAD_CHECK(std::ranges::is_sorted(plan.schedule.cta_begin));
}

ProblemTypes ReadTypes(Reader& reader) {
  ProblemTypes types;
  types.a_type = reader.Value<ActivationType>(3);
  types.c_type = reader.Value<OutputType>(3);
  types.a_scale_layout = reader.Value<ScaleLayout>(2);
  types.b_scale_layout = reader.Value<ScaleLayout>(3);
  types.c_layout = reader.Value<OutputLayout>(2);
  types.epilogue = reader.Value<Epilogue>(1);
  return types;
}

void ByFields(Reader reader) {
  DeviceLimits device;
  device.uuid = "fuzz";
  device.ctas = 1 + reader.Byte() % 16;
  device.rates = {.flops_per_second = 1e12, .read_bytes_per_second = 1e10};
  device.kernels = {{.name = "plain"}, {.name = "packed", .packed_weights = true}};
  device.kernels[0].tile.max_rows = 1 + reader.Byte() % 64;
  device.kernels[0].tile.max_columns = 32 * (1 + reader.Byte() % 8);

  Signature signature;
  signature.types = ReadTypes(reader);
  signature.form = reader.Value<GroupForm>(2);
  signature.m_source = reader.Value<MSource>(3);
  signature.row_scale = reader.Byte() % 2 != 0;
  signature.c_stride = reader.Number();
  signature.capacity_rows = reader.Number();
  signature.device = device.uuid;
  const bool alike = reader.Byte() % 2 != 0;
  for (int groups = reader.Byte() % 11; groups > 0; --groups) {
    GroupShape shape{reader.Number32(), reader.Number32(), reader.Number32()};
    if (alike && !signature.groups.empty()) {
      shape = {shape.m, signature.groups.front().n, signature.groups.front().k};
    }
    signature.groups.push_back(shape);
  }

  const auto canonical = Canonicalize(std::move(signature), kLimits);
  if (!canonical.ok()) return CheckRefusal(canonical.status());
  const auto again = Canonicalize(*canonical, kLimits);
  TETRAD_CHECK(again.ok() && *again == *canonical);
  CheckLayout(*canonical, 1);
  CheckLayout(*canonical, kStagingAlignment);
  const auto plan = BuildPlan(*canonical, device);
  if (!plan.ok()) return CheckRefusal(plan.status());
  TETRAD_CHECK(std::isfinite(plan->floor.floor_us()) && plan->floor.floor_us() >= 0);
  TETRAD_CHECK(std::isfinite(plan->balance()) && !plan->explanation.empty());
  if (!plan->hopper.has_value() && !canonical->device_m()) CheckTiles(*plan);
}

// An engine and weights, once for all inputs.
struct World {
  World() {
    Register("one", {{1, 64, 32}}, ScaleLayout::kLinear);
    Register("alike", {{1, 40, 64}, {1, 40, 64}, {1, 40, 64}}, ScaleLayout::kBlocked);
    Register("mixed", {{1, 8, 32}, {1, 130, 96}}, ScaleLayout::kLinear);
  }
  void Register(const std::string& name, std::vector<GroupShape> shapes, ScaleLayout layout) {
    const SampleRequest sample(std::move(shapes), {.types = {.b_scale_layout = layout}});
    TETRAD_CHECK(sample.Register(engine->weights(), name).ok());
  }
  std::unique_ptr<Engine> engine = *Engine::CreateStepped(
      [](std::function<void()> wake) {
        return CpuDevice::Create({.threads = 1, .memory_bytes = 64 << 20, .measure_rates = false},
                                 std::move(wake));
      },
      {.plan_capacity = 8, .max_inline_bytes = 1 << 20, .signatures = kLimits},
      {.clock = &SteadyNow, .wake_step = [] {}, .wake_housekeep = [] {}});
};

void ByRequest(Reader reader) {
  static World& world = *new World();  // its threads end with the process
  Engine& engine = *world.engine;
  static constexpr const char* kNames[] = {"one", "alike", "mixed", "alike@1", "mixed@2", "none"};
  SignatureRequest request;
  request.weights = kNames[reader.Byte() % std::size(kNames)];
  request.types = ReadTypes(reader);
  request.form = reader.Value<GroupForm>(2);
  request.m_source = reader.Value<MSource>(3);
  for (int groups = reader.Byte() % 5; groups > 0; --groups) request.m.push_back(reader.Number32());
  request.capacity_rows = reader.Number();
  request.c_stride = reader.Number();
  request.row_scale = reader.Byte() % 2 != 0;
  const auto prepared = engine.Prepare("c", request);
  if (!prepared.ok()) return CheckRefusal(prepared.status());

  // Operands of the sizes wanted, or not quite.
  const OperandLayout& wire = prepared->plan->wire;
  const auto size = [&reader](int64_t right) {
    const uint8_t off = reader.Byte();
    return static_cast<size_t>(off < 240 ? right : std::max<int64_t>(0, right + (off % 5) - 2));
  };
  const std::string activations(size(wire.a_bytes), '\x11'),
      scales(size(wire.a_scale_bytes), '\x38');
  const std::vector<float> row_scale(size(request.row_scale ? wire.rows : 0), 2.0f);
  std::vector<int32_t> m_values(size(wire.m_values));
  for (int32_t& value : m_values) value = reader.Number32();
  ExecuteRequest execute{.client = "c", .plan = prepared->handle};
  execute.operands = {.activations = activations,
                      .activation_scales = scales,
                      .alpha = {},
                      .row_scale = row_scale,
                      .m_values = m_values};
  int answers = 0;
  engine.Execute(execute, [&](absl::StatusOr<Executed> executed) {
    ++answers;
    if (!executed.ok()) return CheckRefusal(executed.status());
    TETRAD_CHECK(executed->output_bytes() == wire.c_bytes);
    std::vector<std::byte> out(static_cast<size_t>(wire.c_bytes));
    TETRAD_CHECK(executed->CopyOutput(out).ok());
  });
  while (!engine.idle() || answers == 0) engine.Step();
  TETRAD_CHECK(answers == 1);
  TETRAD_CHECK(engine.Release("c", prepared->handle).ok());
  engine.Housekeep();
}

}  // namespace
}  // namespace tetrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const tetrad::Reader reader(data + 1, size - 1);
  data[0] % 2 == 0 ? tetrad::ByFields(reader) : tetrad::ByRequest(reader);
  return 0;
}
