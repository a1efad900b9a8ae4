// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/config_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include <toml++/toml.h>

#include "absl/strings/str_cat.h"

#include "server/status.h"

namespace tetrad {
namespace {

absl::StatusOr<ConfigValue> ToValue(const toml::node& node) {
  if (const auto* text = node.as_string()) return ConfigValue(text->get());
  if (const auto* number = node.as_integer()) return ConfigValue(number->get());
  if (const auto* flag = node.as_boolean()) return ConfigValue(flag->get());
  if (const auto* list = node.as_array()) {
    std::vector<std::string> texts;
    for (const toml::node& element : *list) {
      const auto* text = element.as_string();
      if (text == nullptr) return absl::InvalidArgumentError("a list may hold texts only");
      texts.push_back(text->get());
    }
    return ConfigValue(std::move(texts));
  }
  if (node.is_table()) return absl::InvalidArgumentError("no option is a table");
  return absl::InvalidArgumentError("no option has a value of this type");
}

}  // namespace

absl::StatusOr<std::vector<ConfigFileEntry>> ReadConfigFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text;
  // Unlike the buffer's own iterators, which throw at a folder, read() only fails.
  for (char block[4096]; stream.read(block, sizeof(block)) || stream.gcount() > 0;) {
    text.append(block, static_cast<size_t>(stream.gcount()));
  }
  if (!stream.is_open() || stream.bad()) {
    return absl::InvalidArgumentError(
        absl::StrCat(ErrorText(path), ": cannot be read: ", std::strerror(errno)));
  }
  toml::table table;
  try {
    table = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(absl::StrCat(ErrorText(path), ":", error.source().begin.line,
                                                   ": ",
                                                   ErrorText(std::string(error.description()))));
  }
  std::vector<ConfigFileEntry> entries;
  for (const auto& [key, node] : table) {
    const std::string location = absl::StrCat(ErrorText(path), ":", key.source().begin.line);
    absl::StatusOr<ConfigValue> value = ToValue(node);
    if (!value.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          location, ": ", ErrorText(std::string(key.str())), ": ", value.status().message()));
    }
    entries.push_back({std::string(key.str()), *std::move(value), location});
  }
  return entries;
}

}  // namespace tetrad
