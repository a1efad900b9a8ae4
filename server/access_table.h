// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// AccessTable: who may do what, as the file of --access says (TOML, described
// in docs/configuration.md), and the decision about one call. A pure function
// of the file, of what the caller showed, and of the time.
//
// Thread-safe: nothing changes after parsing. Errors are INVALID_ARGUMENT and
// begin with file and line; no message holds a token or its digest.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "server/identity.h"
#include "server/metrics.h"

namespace tetrad {

// A set of groups, one bit each.
enum class Groups : uint8_t { kNone = 0, kClient = 1, kOperator = 2, kAdmin = 4, kMetrics = 8 };
constexpr Groups operator|(Groups a, Groups b) {
  return static_cast<Groups>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}
constexpr bool Share(Groups a, Groups b) {
  return (static_cast<uint8_t>(a) & static_cast<uint8_t>(b)) != 0;
}
// "client or metrics"
std::string GroupNames(Groups groups);
// Those of which one is enough for the method.
Groups GroupsOf(Method method);

using TokenDigest = std::array<uint8_t, 32>;  // SHA-256

// What a caller showed beside its connection. Keeps no token.
struct Credential {
  enum class Kind : uint8_t { kNone, kToken, kMalformed };
  // Of the value of an Authorization header.
  static Credential OfHeader(std::string_view header);
  Kind kind = Kind::kNone;
  TokenDigest digest{};
};

class AccessTable {
 public:
  static constexpr size_t kMaxFileBytes = 1 << 20;
  static constexpr size_t kMaxEntries = 4096;  // of tokens, and of subjects
  static constexpr size_t kMaxName = 128;      // of a subject; of a token half of it

  static absl::StatusOr<AccessTable> Parse(const std::string& text, const std::string& path);

  struct Verdict {
    std::string client;   // whose call it is, also if it is refused
    absl::Status status;  // UNAUTHENTICATED or PERMISSION_DENIED, with its reason
    int32_t weight = 1;   // of its share of the device's time
  };
  // Whether one of `wanted` is had for `what`, the name of a method.
  Verdict Decide(const Peer& peer, const Credential& credential, Groups wanted,
                 std::string_view what, absl::Time now) const;

  size_t tokens() const { return tokens_.size(); }
  size_t subjects() const { return subjects_.size(); }

 private:
  class Reader;
  struct Token {
    std::string name;
    TokenDigest digest{};
    Groups groups = Groups::kNone;
    int32_t weight = 1;
    absl::Time expires = absl::InfiniteFuture();
  };
  struct Subject {
    Groups groups = Groups::kNone;
    int32_t weight = 1;
  };
  const Token* Find(const TokenDigest& digest) const;

  std::vector<Token> tokens_;
  std::unordered_multimap<uint64_t, size_t> by_digest_;  // its first bytes -> tokens_
  std::map<std::string, Subject, std::less<>> subjects_;
  std::array<Groups, kOrigins> anonymous_{};
};

}  // namespace tetrad
