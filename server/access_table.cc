// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/access_table.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <toml++/toml.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"

#include "engine/launch.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"
#include "server/status.h"

namespace tetrad {
namespace {

constexpr std::pair<std::string_view, Groups> kGroups[] = {{"client", Groups::kClient},
                                                           {"operator", Groups::kOperator},
                                                           {"admin", Groups::kAdmin},
                                                           {"metrics", Groups::kMetrics}};
constexpr std::string_view kScheme = "bearer ";
constexpr size_t kMaxToken = 1024;

// What clients may send (RFC 6750), so that a mistaken header is not hashed as a token.
bool IsToken(std::string_view text) {
  const size_t end = text.find_last_not_of('=');
  if (text.size() > kMaxToken || end == std::string_view::npos) return false;
  return std::ranges::all_of(text.substr(0, end + 1), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("-._~+/").find(c) != std::string_view::npos;
  });
}

uint64_t FirstBytes(const TokenDigest& digest) {
  uint64_t first = 0;
  std::memcpy(&first, digest.data(), sizeof(first));
  return first;
}

bool IsTokenName(std::string_view name) {
  return !name.empty() && name.size() <= AccessTable::kMaxName / 2 &&
         std::ranges::all_of(name, [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  std::string_view("._/@-").find(c) != std::string_view::npos;
         });
}

}  // namespace

std::string GroupNames(Groups groups) {
  std::string names;
  for (const auto& [name, group] : kGroups) {
    if (!Share(groups, group)) continue;
    absl::StrAppend(&names, names.empty() ? "" : " or ",
                    absl::string_view(name.data(), name.size()));
  }
  return names;
}

Groups GroupsOf(Method method) {
  switch (method) {
    case Method::kUpload:
    case Method::kLoad:
    case Method::kSeal:
    case Method::kDrop:
    case Method::kGetUpload:
      return Groups::kOperator;
    case Method::kList:
    case Method::kPrepare:
    case Method::kExecute:
    case Method::kRelease:
    case Method::kExecuteStream:
    case Method::kSubmit:
    case Method::kWait:
    case Method::kWatch:
    case Method::kCancel:
    case Method::kAttach:
    case Method::kDetach:
    case Method::kAllocate:
    case Method::kWrite:
    case Method::kRead:
    case Method::kFree:
    case Method::kListBlocks:
    case Method::kGetWrite:
      return Groups::kClient;
    case Method::kGetStatus:
      return Groups::kMetrics | Groups::kClient;
    case Method::kDrain:
    case Method::kSetLogLevel:
    case Method::kEndLease:
      return Groups::kAdmin;
  }
  return Groups::kNone;
}

Credential Credential::OfHeader(std::string_view header) {
  Credential credential{.kind = Kind::kMalformed};
  const absl::string_view text(header.data(), header.size());
  if (!absl::StartsWithIgnoreCase(text, absl::string_view(kScheme.data(), kScheme.size()))) {
    return credential;
  }
  const std::string_view token = header.substr(kScheme.size());
  if (!IsToken(token)) return credential;
  ::SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
           credential.digest.data());
  credential.kind = Kind::kToken;
  return credential;
}

// The parser. `where` of an entry is its file and line.
class AccessTable::Reader {
 public:
  explicit Reader(const std::string& path) : path_(ErrorText(path, 300)) {}

  absl::Status Read(const toml::table& file) {
    for (const auto& [key, node] : file) {
      const std::string_view name = key.str();
      if (name == "tokens") {
        TETRAD_RETURN_IF_ERROR(ReadEntries(node, "tokens", &Reader::ReadToken));
      } else if (name == "subjects") {
        TETRAD_RETURN_IF_ERROR(ReadEntries(node, "subjects", &Reader::ReadSubject));
      } else if (name == "anonymous_unix") {
        TETRAD_RETURN_IF_ERROR(ReadGroups(name, node, anonymous(Origin::kUnix)));
      } else if (name == "anonymous_tcp") {
        TETRAD_RETURN_IF_ERROR(ReadGroups(name, node, anonymous(Origin::kTcp)));
      } else if (name == "anonymous_http") {
        TETRAD_RETURN_IF_ERROR(ReadGroups(name, node, anonymous(Origin::kHttp)));
      } else {
        return Error(key.source(), absl::StrCat("unknown key '", ErrorText(name, 100), "'"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Error(const toml::source_region& at, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ":", at.begin.line, ": ", what));
  }

  AccessTable table;

 private:
  using ReadEntry = absl::Status (Reader::*)(const toml::table&);

  Groups& anonymous(Origin origin) { return table.anonymous_[static_cast<size_t>(origin)]; }

  absl::Status ReadEntries(const toml::node& node, const char* what, ReadEntry read) {
    const toml::array* const entries = node.as_array();
    if (entries == nullptr) {
      return Error(node.source(), absl::StrCat(what, ": wanted [[", what, "]]"));
    }
    if (entries->size() > kMaxEntries) {
      return Error(node.source(), absl::StrCat(what, ": ", entries->size(),
                                               " entries, the limit is ", kMaxEntries));
    }
    for (const toml::node& entry : *entries) {
      const toml::table* const fields = entry.as_table();
      if (fields == nullptr) {
        return Error(entry.source(), absl::StrCat(what, ": wanted [[", what, "]]"));
      }
      TETRAD_RETURN_IF_ERROR((this->*read)(*fields));
    }
    return absl::OkStatus();
  }

  absl::Status ReadGroups(std::string_view key, const toml::node& node, Groups& groups) const {
    const std::string name(key);
    const toml::array* const list = node.as_array();
    if (list == nullptr) return Error(node.source(), name + ": wanted a list of groups");
    for (const toml::node& element : *list) {
      const auto* const text = element.as_string();
      const auto* const found =
          text == nullptr ? std::end(kGroups)
                          : std::ranges::find(kGroups, text->get(),
                                              &std::pair<std::string_view, Groups>::first);
      if (found == std::end(kGroups)) {
        return Error(element.source(),
                     name + ": a group is none of client, operator, admin, metrics");
      }
      groups = groups | found->second;
    }
    return absl::OkStatus();
  }

  absl::Status ReadWeight(std::string_view key, const toml::node& node, int32_t& out) const {
    const auto* const value = node.as_integer();
    if (value == nullptr || value->get() < 1 || value->get() > kMaxFlowWeight) {
      return Error(
          node.source(),
          absl::StrCat(std::string(key), ": wanted a whole number from 1 to ", kMaxFlowWeight));
    }
    out = static_cast<int32_t>(value->get());
    return absl::OkStatus();
  }

  absl::Status ReadText(std::string_view key, const toml::node& node, std::string& out) const {
    const auto* const text = node.as_string();
    if (text == nullptr) return Error(node.source(), std::string(key) + ": wanted a text");
    out = text->get();
    return absl::OkStatus();
  }

  absl::Status ReadToken(const toml::table& fields) {
    Token token;
    std::string digest;
    bool groups = false;
    for (const auto& [key, node] : fields) {
      const std::string_view name = key.str();
      if (name == "name") {
        TETRAD_RETURN_IF_ERROR(ReadText("tokens.name", node, token.name));
      } else if (name == "sha256") {
        TETRAD_RETURN_IF_ERROR(ReadText("tokens.sha256", node, digest));
      } else if (name == "groups") {
        groups = true;
        TETRAD_RETURN_IF_ERROR(ReadGroups("tokens.groups", node, token.groups));
      } else if (name == "weight") {
        TETRAD_RETURN_IF_ERROR(ReadWeight("tokens.weight", node, token.weight));
      } else if (name == "expires") {
        TETRAD_RETURN_IF_ERROR(ReadTime(node, token.expires));
      } else {
        return Error(key.source(), absl::StrCat("unknown key 'tokens.", ErrorText(name, 100), "'"));
      }
    }
    if (!IsTokenName(token.name)) {
      return Error(fields.source(), absl::StrCat("tokens.name: '", ErrorText(token.name, 100),
                                                 "' does not match [A-Za-z0-9._/@-]{1,64}"));
    }
    const std::string who = absl::StrCat("token '", token.name, "': ");
    if (!groups) return Error(fields.source(), who + "has no groups");
    // The text is not shown: by mistake it may be a token itself.
    if (digest.size() != 2 * token.digest.size() || !std::ranges::all_of(digest, [](char c) {
          return absl::ascii_isxdigit(static_cast<unsigned char>(c));
        })) {
      return Error(fields.source(), who + "sha256 must be 64 hexadecimal digits");
    }
    const std::string bytes = absl::HexStringToBytes(digest);
    std::ranges::copy(bytes, reinterpret_cast<char*>(token.digest.data()));
    if (!names_.insert(token.name).second) {
      return Error(fields.source(), who + "there are two of this name");
    }
    if (table.Find(token.digest) != nullptr) {
      return Error(fields.source(), who + "another one has the same sha256");
    }
    table.by_digest_.emplace(FirstBytes(token.digest), table.tokens_.size());
    table.tokens_.push_back(std::move(token));
    return absl::OkStatus();
  }

  absl::Status ReadTime(const toml::node& node, absl::Time& out) const {
    const auto* const value = node.as_date_time();
    if (value == nullptr || !value->get().offset.has_value()) {
      return Error(node.source(),
                   "tokens.expires: wanted a time with an offset, as 2027-01-31T00:00:00Z");
    }
    const toml::date_time& time = value->get();
    const absl::CivilSecond civil(time.date.year, time.date.month, time.date.day, time.time.hour,
                                  time.time.minute, time.time.second);
    out = absl::FromCivil(civil, absl::FixedTimeZone(time.offset->minutes * 60));
    return absl::OkStatus();
  }

  absl::Status ReadSubject(const toml::table& fields) {
    std::string subject;
    Subject granted;
    bool groups = false;
    for (const auto& [key, node] : fields) {
      const std::string_view name = key.str();
      if (name == "name") {
        TETRAD_RETURN_IF_ERROR(ReadText("subjects.name", node, subject));
      } else if (name == "groups") {
        groups = true;
        TETRAD_RETURN_IF_ERROR(ReadGroups("subjects.groups", node, granted.groups));
      } else if (name == "weight") {
        TETRAD_RETURN_IF_ERROR(ReadWeight("subjects.weight", node, granted.weight));
      } else {
        return Error(key.source(),
                     absl::StrCat("unknown key 'subjects.", ErrorText(name, 100), "'"));
      }
    }
    const std::string who = absl::StrCat("subject '", ErrorText(subject, 200), "': ");
    if (!IsSubject(subject)) {
      return Error(fields.source(), who + "must be 1 to 128 printable characters without blanks");
    }
    if (!groups) return Error(fields.source(), who + "has no groups");
    if (!table.subjects_.emplace(std::move(subject), granted).second) {
      return Error(fields.source(), who + "there are two of this name");
    }
    return absl::OkStatus();
  }

  const std::string path_;
  std::set<std::string> names_;
};

absl::StatusOr<AccessTable> AccessTable::Parse(const std::string& text, const std::string& path) {
  Reader reader(path);
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(ErrorText(path, 300), ": ", text.size(),
                                                   " bytes, the limit is ", kMaxFileBytes));
  }
  toml::table file;
  try {
    file = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return reader.Error(error.source(), ErrorText(std::string(error.description()), 300));
  }
  TETRAD_RETURN_IF_ERROR(reader.Read(file));
  return std::move(reader.table);
}

// A look-up by the first bytes tells an attacker who measures time nothing: they
// are of a digest, for which no token can be made. The rest is compared in
// constant time.
const AccessTable::Token* AccessTable::Find(const TokenDigest& digest) const {
  const auto [begin, end] = by_digest_.equal_range(FirstBytes(digest));
  for (auto at = begin; at != end; ++at) {
    const Token& token = tokens_[at->second];
    if (::CRYPTO_memcmp(token.digest.data(), digest.data(), digest.size()) == 0) return &token;
  }
  return nullptr;
}

AccessTable::Verdict AccessTable::Decide(const Peer& peer, const Credential& credential,
                                         Groups wanted, std::string_view what,
                                         absl::Time now) const {
  const std::string_view nobody = AnonymousName(peer.origin);
  const Token* token = nullptr;
  if (credential.kind != Credential::Kind::kNone) {
    if (credential.kind == Credential::Kind::kToken) token = Find(credential.digest);
    const char* const wrong = credential.kind == Credential::Kind::kMalformed
                                  ? "authorization: wanted Bearer and a token"
                              : token == nullptr      ? "authorization: the token is not known"
                              : token->expires <= now ? "authorization: the token has expired"
                                                      : nullptr;
    if (wrong != nullptr) {
      return {std::string(nobody), ReasonError(Reason::kBadCredential, wrong)};
    }
  }
  Verdict verdict;
  Groups groups = anonymous_[static_cast<size_t>(peer.origin)];
  const auto subject = peer.subject.empty() ? subjects_.end() : subjects_.find(peer.subject);
  if (subject != subjects_.end()) {
    groups = subject->second.groups;
    verdict.weight = subject->second.weight;
    verdict.client = SubjectClient(peer.subject);
  } else if (token != nullptr) {
    groups = token->groups;
    verdict.weight = token->weight;
    verdict.client = absl::StrCat("token:", token->name);
  } else {
    verdict.client = peer.subject.empty() ? std::string(nobody) : SubjectClient(peer.subject);
  }
  if (Share(groups, wanted)) return verdict;
  const std::string name(what);
  verdict.status =
      token == nullptr && peer.subject.empty()
          ? ReasonError(Reason::kNoCredential,
                        absl::StrCat(name, " needs a credential of group ", GroupNames(wanted)))
          : ReasonError(Reason::kNotAllowed,
                        absl::StrCat(name, " needs group ", GroupNames(wanted), ", which ",
                                     verdict.client, " is not in"));
  return verdict;
}

}  // namespace tetrad
