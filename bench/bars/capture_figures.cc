// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/capture_figures.h"

#include <array>
#include <cstring>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"

#include "bench/bars/bench_device.h"
#include "engine/engine.h"
#include "engine/support/status_macros.h"
#include "kernels/float16.h"

namespace tetrad::bars {
namespace {

constexpr char kClient[] = "bars";
constexpr int32_t kN = 128, kK = 128;
constexpr int32_t kPlans = 8;  // plan p has p + 1 rows
constexpr int kSets = 16;      // of operands; every plan meets each of them
constexpr int kLaunches = 1'000;
static_assert(kLaunches % kPlans == 0);

// Where the operands lie in the block of a set.
constexpr int64_t kCodeBytes = kPlans * kK / 2, kScaleBytes = kPlans * kK / 16;
constexpr int64_t kScalesOffset = kCodeBytes, kOutputOffset = 1024;
constexpr int64_t kOutputBytes = kPlans * kN * 2;  // of one plan
constexpr int64_t kBlockBytes = kOutputOffset + kPlans * kOutputBytes;
static_assert(kScalesOffset + kScaleBytes <= kOutputOffset);

constexpr uint8_t kOneOne = 0x22, kScaleOne = 0x38;

// All activations of a set have one value: a code other than 0, times 1, 2 or 4.
uint8_t CodesOf(int set) { return static_cast<uint8_t>((1 + set % 7) * 0x11); }
uint8_t ScaleOf(int set) { return static_cast<uint8_t>(kScaleOne + set / 7 * 8); }
float ValueOf(int set) {
  constexpr std::array<float, 8> kCodes = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return kCodes[1 + set % 7] * static_cast<float>(1 << (set / 7));
}

class Rotation {
 public:
  explicit Rotation(const Setting& setting) : setting_(setting) {}

  absl::Status Prepare() {
    auto make = FactoryOf(setting_);
    EngineOptions options;
    TETRAD_ASSIGN_OR_RETURN(engine_, Engine::Create(
                                         [this, &make](std::function<void()> wake) {
                                           auto device = make(std::move(wake));
                                           if (device.ok()) device_ = device->get();
                                           return device;
                                         },
                                         options));
    TETRAD_RETURN_IF_ERROR(RegisterWeights());
    TETRAD_ASSIGN_OR_RETURN(lease_, engine_->Attach(kClient, {}));
    for (int set = 0; set < kSets; ++set) TETRAD_RETURN_IF_ERROR(PrepareSet(set));
    for (int32_t plan = 0; plan < kPlans; ++plan) {
      SignatureRequest signature;
      signature.weights = "w";
      signature.m = {plan + 1};
      TETRAD_ASSIGN_OR_RETURN(const PreparedPlan prepared,
                              engine_->Prepare(kClient, signature, lease_.lease));
      plans_[plan] = prepared.handle;
    }
    return absl::OkStatus();
  }

  // One launch of every plan on the set, all under way together.
  absl::Status Launch(int set) {
    std::array<std::promise<absl::Status>, kPlans> ends;
    for (int32_t plan = 0; plan < kPlans; ++plan) {
      const BlockRange a{blocks_[set], 0, (plan + 1) * kK / 2};
      const BlockRange scales{blocks_[set], kScalesOffset, (plan + 1) * kK / 16};
      const BlockRange output{blocks_[set], kOutputOffset + plan * kOutputBytes,
                              (plan + 1) * kN * 2};
      const BlockOperands operands{.activations = a, .activation_scales = scales, .output = output};
      ExecuteRequest request;
      request.client = kClient;
      request.plan = plans_[plan];
      request.blocks = &operands;
      engine_->Execute(request, [&end = ends[plan]](absl::StatusOr<Executed> executed) {
        absl::Status status = executed.status();
        executed = absl::CancelledError();  // its staging serves the next one
        end.set_value(std::move(status));
      });
    }
    absl::Status status = absl::OkStatus();
    for (auto& end : ends) status.Update(end.get_future().get());
    return status;
  }

  int64_t captures() const { return device_->execution_use().captures; }

  // Every output of every plan on every set.
  absl::Status CheckOutputs() const {
    for (int set = 0; set < kSets; ++set) {
      const uint16_t expected = EncodeFp16(ValueOf(set) * kK);
      std::vector<std::byte> outputs(kPlans * kOutputBytes);
      TETRAD_RETURN_IF_ERROR(engine_->Read(kClient, blocks_[set], kOutputOffset, outputs));
      for (int32_t plan = 0; plan < kPlans; ++plan) {
        for (int64_t at = 0; at < (plan + 1) * kN; ++at) {
          uint16_t bits;
          std::memcpy(&bits, &outputs[static_cast<size_t>(plan * kOutputBytes + at * 2)], 2);
          if (bits == expected) continue;
          return absl::DataLossError(absl::StrCat("plan ", plan, ", set ", set, ", element ", at,
                                                  " has bits ", bits, ", not ", expected));
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status RegisterWeights() {
    WeightsRegistry& weights = engine_->weights();
    WeightsSpec spec;
    spec.name = "w";
    spec.groups = {{kN, kK}};
    TETRAD_ASSIGN_OR_RETURN(const int64_t version, weights.Begin(std::move(spec)));
    const std::vector<std::byte> codes(kN * kK / 2, std::byte{kOneOne});
    const std::vector<std::byte> scales(kN * kK / 16, std::byte{kScaleOne});
    TETRAD_RETURN_IF_ERROR(weights.Write("w", version, WeightsOperand::kCodes, 0, codes));
    TETRAD_RETURN_IF_ERROR(weights.Write("w", version, WeightsOperand::kScales, 0, scales));
    return weights.Seal("w", version).status();
  }

  absl::Status PrepareSet(int set) {
    TETRAD_ASSIGN_OR_RETURN(const BlockInfo block,
                            engine_->Allocate(kClient, lease_.lease, kBlockBytes));
    blocks_[set] = block.block;
    const std::vector<std::byte> codes(kCodeBytes, std::byte{CodesOf(set)});
    const std::vector<std::byte> scales(kScaleBytes, std::byte{ScaleOf(set)});
    TETRAD_RETURN_IF_ERROR(engine_->Write(kClient, block.block, 0, codes));
    return engine_->Write(kClient, block.block, kScalesOffset, scales);
  }

  const Setting& setting_;
  std::unique_ptr<Engine> engine_;
  const Device* device_ = nullptr;  // the engine's
  LeaseInfo lease_;
  std::array<std::string, kPlans> plans_;
  std::array<std::string, kSets> blocks_;
};

}  // namespace

absl::StatusOr<Measured> CapturesPer1000(const Setting& setting) {
  Rotation rotation(setting);
  TETRAD_RETURN_IF_ERROR(rotation.Prepare());
  for (int set = 0; set < kSets; ++set) TETRAD_RETURN_IF_ERROR(rotation.Launch(set));
  const int64_t before = rotation.captures();
  for (int wave = 0; wave < kLaunches / kPlans; ++wave) {
    TETRAD_RETURN_IF_ERROR(rotation.Launch(wave % kSets));
  }
  const int64_t after = rotation.captures();
  TETRAD_RETURN_IF_ERROR(rotation.CheckOutputs());
  return Counted(after - before);
}

}  // namespace tetrad::bars
