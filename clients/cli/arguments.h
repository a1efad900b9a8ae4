// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The command line of tetradctl as plain values. Parsing touches nothing but
// its input and the environment (docs/cli.md names the variables); whatever it
// accepts is well formed, but only the daemon knows whether it is possible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tetrad/v1/types.pb.h"
#include "tetrad/v1/weights.pb.h"

#include "clients/cpp/client.h"

namespace tetrad::cli {

inline constexpr int64_t kMaxBenchRequests = 1'000'000;
inline constexpr double kMaxBenchSeconds = 3600;
inline constexpr char kDefaultEndpoint[] = "unix:/run/tetrad/tetrad.sock";

struct GlobalOptions {
  std::string endpoint = kDefaultEndpoint;
  bool json = false;
  absl::Duration timeout;  // zero: the client's defaults
  std::optional<TlsOptions> tls;
  std::string token;  // of the environment only: everybody may read a command line
  std::string token_file;
  std::string traceparent;
};

struct StatusCommand {};
struct WeightsLoadCommand {
  v1::LoadRequest request;
};
struct WeightsListCommand {};
struct WeightsDropCommand {
  std::string weights;
};
struct WeightsSealCommand {
  std::string name;
  int64_t version = 0;
};
struct PlanCommand {
  v1::Signature signature;
};
struct RunCommand {
  v1::Signature signature;
  std::vector<int32_t> live_rows;  // device-side M: rows per group; empty: spread evenly
  int repeats = 20;
  int warmups = 3;
  uint64_t seed = 1;
};

enum class ShapeSet { kContest, kContestTests, kDecode, kPrefill, kRandom, kWeights };
struct VerifyCommand {
  ShapeSet shapes = ShapeSet::kContest;
  uint64_t seed = 1;     // kRandom: the first seed; else of the data
  int64_t count = 0;     // kRandom
  std::string weights;   // kWeights: name[@version]
  std::string expected;  // kWeights: safetensors file with dequantised values
  std::string pattern;   // kWeights: tensor name in it, with {expert}
  bool verbose = false;  // a row per seed
};

struct BenchCommand {
  std::string shape;  // a name of kernels/shapes.h; empty: the signature's weights
  v1::Signature signature;
  std::vector<int32_t> live_rows;  // as of RunCommand
  int in_flight = 1;
  int64_t requests = kMaxBenchRequests;  // at most
  absl::Duration duration;
  int warmups = 3;  // for each in flight
  uint64_t seed = 1;
  bool plan = true;  // one handle; else the signature with each request
};

struct DrainCommand {};
struct LogLevelCommand {
  std::string level;
};
struct EndLeaseCommand {
  std::string lease;
};

// The answer to --help, --help-all and --version.
struct HelpText {
  std::string text;
};

using Command =
    std::variant<StatusCommand, WeightsLoadCommand, WeightsListCommand, WeightsDropCommand,
                 WeightsSealCommand, PlanCommand, RunCommand, VerifyCommand, BenchCommand,
                 DrainCommand, LogLevelCommand, EndLeaseCommand, HelpText>;

struct Invocation {
  GlobalOptions global;
  Command command;
};

// `arguments` without the program name. INVALID_ARGUMENT: text for the user,
// naming the option and what it accepts.
absl::StatusOr<Invocation> ParseArguments(std::vector<std::string> arguments);

}  // namespace tetrad::cli
