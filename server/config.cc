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

#include "engine/checkpoint/printable.h"
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

absl::Status CheckUtf8(std::string_view text) {
  if (FindInvalidUtf8(text) == std::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(Display(text), " is not UTF-8"));
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

absl::Status SetOption(const ConfigOption& option, const ConfigValue& value, Config& config) {
  // Flags and variables may hold any bytes; the file that --print-config writes may not.
  if (const auto* text = std::get_if<std::string>(&value)) TETRAD_RETURN_IF_ERROR(CheckUtf8(*text));
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& text : *list) TETRAD_RETURN_IF_ERROR(CheckUtf8(text));
  }
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
