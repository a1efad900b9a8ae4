// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: any bytes as a configuration file, flags and variables. Pieces end with a NUL: the
// first is the file, of the others those that begin with "TETRAD_" are variables and the rest are
// flags. What is refused says so in one printable line; what is accepted keeps every limit, and
// printed and read again it is the same configuration.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "engine/support/status_macros.h"
#include "engine/support/unique_fd.h"
#include "server/config.h"

namespace tetrad {
namespace {

// A file in memory, by a name that can be opened.
class File {
 public:
  explicit File(std::string_view text) : fd_(memfd_create("config", MFD_CLOEXEC)) {
    TETRAD_CHECK(write(fd_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  std::string path() const { return absl::StrCat("/proc/self/fd/", fd_.get()); }

 private:
  const UniqueFd fd_;
};

void CheckRefusal(const absl::Status& status) {
  constexpr size_t kLongestMessage = 8192;
  const std::string_view message(status.message().data(), status.message().size());
  TETRAD_CHECK(absl::IsInvalidArgument(status));
  TETRAD_CHECK(!message.empty() && message.size() <= kLongestMessage);
  TETRAD_CHECK(std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; }));
}

bool Equal(const Config& a, const Config& b) {
  return std::ranges::all_of(ConfigOptions(), [&](const ConfigOption& option) {
    return std::visit([&](auto field) { return a.*field == b.*field; }, option.field);
  });
}

void CheckLimits(const Config& config) {
  for (const ConfigOption& option : ConfigOptions()) {
    if (const auto* number = std::get_if<int64_t Config::*>(&option.field)) {
      TETRAD_CHECK(config.**number >= option.least && config.**number <= option.most);
    } else if (const auto* text = std::get_if<std::string Config::*>(&option.field)) {
      TETRAD_CHECK(option.choices.empty() ||
                   std::ranges::count(option.choices, config.**text) == 1);
    }
  }
}

void Run(std::string_view bytes) {
  const std::string text(bytes);  // Abseil splits a text at null into no pieces, not into one
  const std::vector<std::string> pieces = absl::StrSplit(text, '\0');
  const File file(pieces.front());
  std::vector<std::string> arguments = {"--config", file.path()};
  std::map<std::string, std::string, std::less<>> variables;
  for (size_t i = 1; i < pieces.size(); ++i) {
    const size_t equal = pieces[i].find('=');
    // Another file would be read, whatever it is.
    if (pieces[i].find("config") != std::string::npos) continue;
    if (pieces[i].starts_with("TETRAD_") && equal != std::string::npos) {
      variables[pieces[i].substr(0, equal)] = pieces[i].substr(equal + 1);
    } else {
      arguments.push_back(pieces[i]);
    }
  }
  const auto loaded =
      LoadConfig(arguments, [&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      });
  if (!loaded.ok()) return CheckRefusal(loaded.status());
  if (loaded->action == ConfigAction::kPrintHelp) return;
  CheckLimits(loaded->config);
  const File printed(PrintConfig(*loaded));
  const auto again =
      LoadConfig(std::vector<std::string>{"--config", printed.path()},
                 [](const std::string&) -> std::optional<std::string> { return std::nullopt; });
  TETRAD_CHECK(again.ok() && Equal(again->config, loaded->config));
}

}  // namespace
}  // namespace tetrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tetrad::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
