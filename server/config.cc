// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/config.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include <CLI/CLI.hpp>

#include "engine/support/status_macros.h"
#include "server/config_file.h"
#include "server/status.h"

namespace tetrad {
namespace {

std::string Display(std::string_view text) { return absl::StrCat("'", ErrorText(text, 200), "'"); }

absl::StatusOr<int64_t> ParseNumber(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return absl::InvalidArgumentError(absl::StrCat(Display(text), " is not a whole number"));
  }
  return value;
}

absl::StatusOr<bool> ParseFlag(std::string_view text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return absl::InvalidArgumentError(absl::StrCat(Display(text), " is neither true nor false"));
}

absl::Status CheckRange(const ConfigOption& option, int64_t value) {
  if (value >= option.least && value <= option.most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(value, " is not in [", option.least, ", ", option.most, "]"));
}

absl::Status CheckChoice(const ConfigOption& option, std::string_view value) {
  if (option.choices.empty() || std::ranges::count(option.choices, value) != 0) {
    return absl::OkStatus();
  }
  std::vector<std::string> choices(option.choices.begin(), option.choices.end());
  return absl::InvalidArgumentError(
      absl::StrCat(Display(value), " is none of ", absl::StrJoin(choices, ", ")));
}

struct Setter {
  const ConfigOption& option;
  Config& config;

  absl::Status operator()(std::string Config::*field, const std::string& value) const {
    TETRAD_RETURN_IF_ERROR(CheckChoice(option, value));
    config.*field = value;
    return absl::OkStatus();
  }
  absl::Status operator()(std::vector<std::string> Config::*field,
                          const std::vector<std::string>& value) const {
    config.*field = value;
    return absl::OkStatus();
  }
  absl::Status operator()(std::vector<std::string> Config::*field, const std::string& value) const {
    config.*field = absl::StrSplit(value, ',', absl::SkipWhitespace());
    return absl::OkStatus();
  }
  absl::Status operator()(int64_t Config::*field, int64_t value) const {
    TETRAD_RETURN_IF_ERROR(CheckRange(option, value));
    config.*field = value;
    return absl::OkStatus();
  }
  absl::Status operator()(int64_t Config::*field, const std::string& value) const {
    TETRAD_ASSIGN_OR_RETURN(const int64_t number, ParseNumber(value));
    return (*this)(field, number);
  }
  absl::Status operator()(bool Config::*field, bool value) const {
    config.*field = value;
    return absl::OkStatus();
  }
  absl::Status operator()(bool Config::*field, const std::string& value) const {
    TETRAD_ASSIGN_OR_RETURN(config.*field, ParseFlag(value));
    return absl::OkStatus();
  }
  template <typename Field, typename Value>
  absl::Status operator()(Field, const Value&) const {
    return absl::InvalidArgumentError(
        absl::StrCat("has the wrong type; wanted: ", std::string(option.value)));
  }
};

absl::Status Apply(const ConfigOption& option, const ConfigValue& value, std::string_view source,
                   LoadedConfig& loaded) {
  if (const absl::Status status = SetOption(option, value, loaded.config); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(source), ": ", status.message()));
  }
  loaded.sources.insert_or_assign(option.key(), std::string(source));
  return absl::OkStatus();
}

struct Flags {
  std::map<std::string_view, std::vector<std::string>> values;  // by option name
  std::optional<std::string> file;
  ConfigAction action = ConfigAction::kServe;
  std::string help;
};

absl::StatusOr<Flags> ParseFlags(std::span<const std::string> arguments) {
  Flags flags;
  bool print_config = false;
  bool print_version = false;
  CLI::App app("Tetrad's daemon: executes NVFP4 grouped GEMMs for many clients.", "tetradd");
  app.add_option("--config", flags.file, "TOML file with any of these options as keys")
      ->type_name("FILE");
  for (const ConfigOption& option : ConfigOptions()) {
    const std::string name = absl::StrCat("--", std::string(option.name));
    std::vector<std::string>& values = flags.values[option.name];
    const std::string help = absl::StrCat(std::string(option.help), " [", option.variable(), "]");
    if (std::holds_alternative<bool Config::*>(option.field)) {
      app.add_flag_callback(
          name, [&values] { values = {"true"}; }, help);
      continue;
    }
    const bool repeatable =
        std::holds_alternative<std::vector<std::string> Config::*>(option.field);
    app.add_option(name, values, help)
        ->type_name(std::string(option.value))
        ->expected(1)
        ->allow_extra_args(false)
        ->multi_option_policy(repeatable ? CLI::MultiOptionPolicy::TakeAll
                                         : CLI::MultiOptionPolicy::Throw);
  }
  app.add_flag("--print-config", print_config, "Print every value with its source and exit");
  app.add_flag("--version", print_version, "Print the version and exit");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    flags.action = ConfigAction::kPrintHelp;
    flags.help = app.help();
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(ErrorText(error.what()));
  }
  if (print_config) flags.action = ConfigAction::kPrintConfig;
  if (print_version) flags.action = ConfigAction::kPrintVersion;
  return flags;
}

absl::Status ApplyFile(const std::string& path, LoadedConfig& loaded) {
  TETRAD_ASSIGN_OR_RETURN(const std::vector<ConfigFileEntry> entries, ReadConfigFile(path));
  for (const ConfigFileEntry& entry : entries) {
    const auto options = ConfigOptions();
    const auto option = std::ranges::find(options, entry.key, &ConfigOption::key);
    if (option == options.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.location, ": unknown key ", Display(entry.key)));
    }
    TETRAD_RETURN_IF_ERROR(
        Apply(*option, entry.value, absl::StrCat(entry.location, ": ", entry.key), loaded));
    loaded.sources.insert_or_assign(entry.key, entry.location);
  }
  return absl::OkStatus();
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppend(&out, "\\u", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad4));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

struct Printer {
  const Config& config;
  std::string operator()(std::string Config::*field) const { return Quoted(config.*field); }
  std::string operator()(int64_t Config::*field) const { return absl::StrCat(config.*field); }
  std::string operator()(bool Config::*field) const { return config.*field ? "true" : "false"; }
  std::string operator()(std::vector<std::string> Config::*field) const {
    return absl::StrCat(
        "[",
        absl::StrJoin(config.*field, ", ",
                      [](std::string* out, const std::string& text) { out->append(Quoted(text)); }),
        "]");
  }
};

}  // namespace

std::string ConfigOption::key() const {
  std::string key(name);
  std::ranges::replace(key, '-', '_');
  return key;
}

std::string ConfigOption::variable() const {
  return absl::StrCat("TETRAD_", absl::AsciiStrToUpper(key()));
}

std::span<const ConfigOption> ConfigOptions() {
  static const std::vector<ConfigOption> options = {
      {.name = "device",
       .value = "auto|cpu|cuda:all|cuda:UUID",
       .help = "What computes",
       .field = &Config::device},
      {.name = "listen",
       .value = "unix:PATH|HOST:PORT",
       .help = "Where gRPC is served; repeatable; port 0 takes a free one",
       .field = &Config::listen},
      {.name = "http",
       .value = "HOST:PORT|off",
       .help = "Where /metrics, /healthz and /readyz are served",
       .field = &Config::http},
      {.name = "insecure-listen",
       .value = "true|false",
       .help = "Allow listeners beyond loopback without TLS",
       .field = &Config::insecure_listen},
      {.name = "checkpoint-root",
       .value = "FOLDER",
       .help = "The folder below which checkpoints may be loaded; empty: none",
       .field = &Config::checkpoint_root},
      {.name = "load-threads",
       .value = "COUNT",
       .help = "Threads that read a checkpoint; 0: what the machine is good for",
       .field = &Config::load_threads,
       .most = 256},
      {.name = "threads",
       .value = "COUNT",
       .help = "Threads of the CPU device; 0: one per processor",
       .field = &Config::threads,
       .most = 4096},
      {.name = "instruction-set",
       .value = "auto|portable|avx2|avx512",
       .help = "Kernels of the CPU device",
       .field = &Config::instruction_set,
       .choices = {"auto", "portable", "avx2", "avx512"}},
      {.name = "memory-bytes",
       .value = "BYTES",
       .help = "Device memory to use at most; 0: what the device allows",
       .field = &Config::memory_bytes},
      {.name = "lanes",
       .value = "COUNT",
       .help = "Streams of a GPU; the first is for what is urgent",
       .field = &Config::lanes,
       .least = 1,
       .most = 64},
      {.name = "max-in-flight",
       .value = "COUNT",
       .help = "Launches the device has at a time",
       .field = &Config::max_in_flight,
       .least = 1,
       .most = 4096},
      {.name = "graph-bytes",
       .value = "BYTES",
       .help = "Device memory of a GPU's instantiated graphs",
       .field = &Config::graph_bytes,
       .least = 1 << 20},
      {.name = "plan-device-bytes",
       .value = "BYTES",
       .help = "Device memory of plans' tables on a GPU and of the scratch of replay proofs",
       .field = &Config::plan_device_bytes,
       .least = 1 << 20},
      {.name = "spin-microseconds",
       .value = "COUNT",
       .help = "How long a thread spins for work before it sleeps; -1: 300 with a GPU and at "
               "least 8 processors, else 0",
       .field = &Config::spin_microseconds,
       .least = -1,
       .most = 1'000'000},
      {.name = "plan-capacity",
       .value = "COUNT",
       .help = "Plans kept in the cache",
       .field = &Config::plan_capacity,
       .least = 1,
       .most = 1 << 20},
      {.name = "plan-host-bytes",
       .value = "BYTES",
       .help = "Host memory of cached plans, all together",
       .field = &Config::plan_host_bytes,
       .least = 1 << 20},
      {.name = "max-inline-bytes",
       .value = "BYTES",
       .help = "Operands of one request plus its reply",
       .field = &Config::max_inline_bytes,
       .least = 4096,
       .most = 1900ll << 20},  // a gRPC message is below 2 GiB
      {.name = "staging-bytes",
       .value = "BYTES",
       .help = "Device memory for inline operands of all plans",
       .field = &Config::staging_bytes,
       .least = 4096},
      {.name = "call-bytes",
       .value = "BYTES",
       .help = "Host memory of requests and replies of Execute calls, all together",
       .field = &Config::call_bytes,
       .least = 4096},
      {.name = "queue-depth",
       .value = "COUNT",
       .help = "Requests admitted and not yet on the device",
       .field = &Config::queue_depth,
       .least = 1,
       .most = 1 << 20},
      {.name = "stream-in-flight",
       .value = "COUNT",
       .help = "Requests of one ExecuteStream under way; at the limit no more are read",
       .field = &Config::stream_in_flight,
       .least = 1,
       .most = 65536},
      {.name = "launch-timeout-seconds",
       .value = "SECONDS",
       .help =
           "A device that completes nothing for so long, beyond 32 times the prediction, is lost",
       .field = &Config::launch_timeout_seconds,
       .least = 1,
       .most = 1 << 20},
      {.name = "lease-grace-seconds",
       .value = "SECONDS",
       .help = "How long blocks and plan handles outlive their client's Attach stream",
       .field = &Config::lease_grace_seconds,
       .most = 1 << 20},
      {.name = "handle-idle-seconds",
       .value = "SECONDS",
       .help = "How long a plan handle without a lease lives unused",
       .field = &Config::handle_idle_seconds,
       .least = 1,
       .most = 1 << 30},
      {.name = "max-leases",
       .value = "COUNT",
       .help = "Leases, attached or in their grace time",
       .field = &Config::max_leases,
       .least = 1,
       .most = 1 << 20},
      {.name = "client-block-bytes",
       .value = "BYTES",
       .help = "Device memory for blocks of one client; 0: half of the device's",
       .field = &Config::client_block_bytes},
      {.name = "pool-chunk-bytes",
       .value = "BYTES",
       .help = "Unexported device memory is taken in chunks of this size",
       .field = &Config::pool_chunk_bytes,
       .least = 1 << 20,
       .most = 1ll << 40},
      {.name = "allocation-log",
       .value = "FILE",
       .help = "Record what the pool does to this new file; empty: do not",
       .field = &Config::allocation_log},
      {.name = "lame-duck-seconds",
       .value = "SECONDS",
       .help = "After SIGTERM: how long new requests are still taken",
       .field = &Config::lame_duck_seconds,
       .most = 3600},
      {.name = "drain-seconds",
       .value = "SECONDS",
       .help = "After that: how long running requests may still take",
       .field = &Config::drain_seconds,
       .most = 3600},
      {.name = "crash-report",
       .value = "FILE",
       .help = "Where a crash is reported besides standard error; empty: nowhere",
       .field = &Config::crash_report},
      {.name = "log-format",
       .value = "logfmt|json",
       .help = "Form of the log lines on standard error",
       .field = &Config::log_format,
       .choices = {"logfmt", "json"}},
      {.name = "log-level",
       .value = "debug|info|warning|error",
       .help = "Least level that is logged",
       .field = &Config::log_level,
       .choices = {"debug", "info", "warning", "error"}},
  };
  return options;
}

absl::Status SetOption(const ConfigOption& option, const ConfigValue& value, Config& config) {
  return std::visit(Setter{option, config}, option.field, value);
}

absl::StatusOr<LoadedConfig> LoadConfig(std::span<const std::string> arguments,
                                        const Environment& environment) {
  LoadedConfig loaded;
  TETRAD_ASSIGN_OR_RETURN(Flags flags, ParseFlags(arguments));
  loaded.action = flags.action;
  loaded.help = std::move(flags.help);
  if (loaded.action == ConfigAction::kPrintHelp || loaded.action == ConfigAction::kPrintVersion) {
    return loaded;
  }
  const std::optional<std::string> file =
      flags.file.has_value() ? flags.file : environment("TETRAD_CONFIG");
  if (file.has_value()) TETRAD_RETURN_IF_ERROR(ApplyFile(*file, loaded));
  for (const ConfigOption& option : ConfigOptions()) {
    if (const std::optional<std::string> value = environment(option.variable())) {
      TETRAD_RETURN_IF_ERROR(Apply(option, *value, option.variable(), loaded));
    }
  }
  for (const ConfigOption& option : ConfigOptions()) {
    std::vector<std::string>& values = flags.values[option.name];
    if (values.empty()) continue;
    const bool list = std::holds_alternative<std::vector<std::string> Config::*>(option.field);
    const ConfigValue value = list ? ConfigValue(values) : ConfigValue(values.front());
    TETRAD_RETURN_IF_ERROR(
        Apply(option, value, absl::StrCat("--", std::string(option.name)), loaded));
  }
  return loaded;
}

std::string PrintConfig(const LoadedConfig& loaded) {
  std::string out;
  for (const ConfigOption& option : ConfigOptions()) {
    const std::string key = option.key();
    const auto source = loaded.sources.find(key);
    absl::StrAppend(&out, key, " = ", std::visit(Printer{loaded.config}, option.field), "  # ",
                    source == loaded.sources.end() ? "default" : source->second, "\n");
  }
  return out;
}

}  // namespace tetrad
