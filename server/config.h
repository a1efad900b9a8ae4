// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Config: everything an operator can set, and where each value came from.
//
// One table (ConfigOptions) names every field; the flag --plan-capacity, the
// variable TETRAD_PLAN_CAPACITY and the key `plan_capacity` of a TOML file are
// the same option. Later sources win: defaults, file, environment, flags.
// Unknown flags and keys are refused, keys with file and line. Variables that
// name no option are not looked at: Kubernetes puts TETRAD_* variables of its
// own into every pod beside a service of that name.
//
// Plain values. Errors are INVALID_ARGUMENT and name source, option and value.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/engine.h"

namespace tetrad {

struct Config {
  std::string device = "auto";
  std::vector<std::string> listen = {"unix:/run/tetrad/tetrad.sock"};
  std::string http = "127.0.0.1:9464";
  bool insecure_listen = false;
  std::string health = "off";
  std::string socket_mode = "0600";
  std::string socket_group;
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_client_ca;
  bool tls_require_client = false;
  std::string access;
  int64_t reload_seconds = 10;
  bool no_reflection = false;
  std::string checkpoint_root;
  int64_t load_threads = 0;
  int64_t threads = 0;
  std::string instruction_set = "auto";
  int64_t memory_bytes = 0;
  int64_t lanes = 4;
  int64_t max_in_flight = 64;
  int64_t graph_bytes = 256ll << 20;
  int64_t plan_device_bytes = 4ll << 30;
  int64_t spin_microseconds = -1;
  int64_t plan_capacity = EngineOptions{}.plan_capacity;
  int64_t plan_host_bytes = EngineOptions{}.plan_host_bytes;
  int64_t max_inline_bytes = EngineOptions{}.max_inline_bytes;
  int64_t staging_bytes = EngineOptions{}.staging_bytes;
  int64_t queue_depth = EngineOptions{}.queue_depth;
  int64_t call_bytes = 4ll << 30;
  int64_t stream_in_flight = 64;
  int64_t max_metadata_bytes = 16 << 10;
  int64_t connection_calls = 1024;
  int64_t client_calls = 4096;
  int64_t progress_seconds = 60;
  int64_t upload_keep_seconds = 300;
  int64_t max_tickets = 65536;
  int64_t client_tickets = 4096;
  int64_t ticket_bytes = 1ll << 30;
  int64_t ticket_keep_seconds = 600;
  int64_t launch_timeout_seconds = absl::ToInt64Seconds(EngineOptions{}.launch_timeout);
  int64_t lease_grace_seconds = absl::ToInt64Seconds(LeaseLimits{}.grace);
  int64_t handle_idle_seconds = absl::ToInt64Seconds(LeaseLimits{}.handle_idle);
  int64_t max_leases = LeaseLimits{}.max_leases;
  int64_t client_block_bytes = LeaseLimits{}.client_block_bytes;
  int64_t pool_chunk_bytes = EngineOptions{}.pool_chunk_bytes;
  std::string allocation_log;
  int64_t lame_duck_seconds = 5;
  int64_t drain_seconds = 25;
  std::string crash_report;
  std::string log_format = "logfmt";
  std::string log_level = "info";
};

// One option: its name as a flag, and the field it sets.
struct ConfigOption {
  using Field = std::variant<std::string Config::*, std::vector<std::string> Config::*,
                             int64_t Config::*, bool Config::*>;
  std::string_view name;
  std::string_view value;  // how help shows the value
  std::string_view help;
  Field field;
  int64_t least = 0;  // numbers only
  int64_t most = INT64_MAX;
  std::vector<std::string_view> choices = {};  // texts only; empty: any

  std::string key() const;       // plan_capacity
  std::string variable() const;  // TETRAD_PLAN_CAPACITY
};

std::span<const ConfigOption> ConfigOptions();

// A value as text of a flag or variable, or typed as a file brings it.
using ConfigValue = std::variant<std::string, std::vector<std::string>, int64_t, bool>;

// Sets the field; texts are parsed as the field's type wants.
absl::Status SetOption(const ConfigOption& option, const ConfigValue& value, Config& config);

// What the command line asks for besides serving.
enum class ConfigAction { kServe, kPrintConfig, kPrintVersion, kPrintHelp };

struct LoadedConfig {
  Config config;
  std::map<std::string, std::string, std::less<>> sources;  // by key; defaults are absent
  ConfigAction action = ConfigAction::kServe;
  std::string help;  // kPrintHelp
};

// Looks a variable up; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

// `arguments` without the program's name.
absl::StatusOr<LoadedConfig> LoadConfig(std::span<const std::string> arguments,
                                        const Environment& environment);

// A valid configuration file with the source of each value as a comment.
std::string PrintConfig(const LoadedConfig& loaded);

}  // namespace tetrad
