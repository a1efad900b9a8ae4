// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/trace_context.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

// version "-" trace-id "-" parent-id "-" trace-flags
constexpr size_t kVersionSize = 2, kTraceIdSize = 32, kSpanIdSize = 16, kFlagsSize = 2;
constexpr size_t kTraceIdAt = kVersionSize + 1;
constexpr size_t kSpanIdAt = kTraceIdAt + kTraceIdSize + 1;
constexpr size_t kFlagsAt = kSpanIdAt + kSpanIdSize + 1;
constexpr size_t kSize = kFlagsAt + kFlagsSize;
static_assert(kSize == 55);
// Of one that a later version has made longer.
constexpr size_t kLongest = 1024;

// Of a tracestate: what the recommendation says is to be passed on at least, and
// the most it allows.
constexpr size_t kStateBytes = 512;
constexpr size_t kMembers = 32;

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

int Digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

bool ParseTraceparent(std::string_view text, TraceContext& out) {
  if (text.size() < kSize || text.size() > kLongest) return false;
  const std::string_view version = text.substr(0, kVersionSize);
  const std::string_view trace_id = text.substr(kTraceIdAt, kTraceIdSize);
  const std::string_view span_id = text.substr(kSpanIdAt, kSpanIdSize);
  const std::string_view flags = text.substr(kFlagsAt, kFlagsSize);
  if (!IsHex(version) || version == "ff") return false;
  // Later versions may add fields at the end, and flags.
  if (text.size() > kSize && (version == "00" || text[kSize] != '-')) return false;
  for (const size_t dash : {kTraceIdAt - 1, kSpanIdAt - 1, kFlagsAt - 1}) {
    if (text[dash] != '-') return false;
  }
  if (!IsHex(trace_id) || IsZero(trace_id)) return false;
  if (!IsHex(span_id) || IsZero(span_id)) return false;
  if (!IsHex(flags)) return false;
  out.trace_id = trace_id;
  out.span_id = span_id;
  out.sampled = Digit(flags[1]) % 2 == 1;
  return true;
}

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsKeyPart(std::string_view text, size_t longest, bool digit_first) {
  if (text.empty() || text.size() > longest) return false;
  if (!IsLower(text[0]) && !(digit_first && IsDigit(text[0]))) return false;
  return std::ranges::all_of(text, [](char c) {
    return IsLower(c) || IsDigit(c) || c == '_' || c == '-' || c == '*' || c == '/';
  });
}

// A name, or tenant@system.
bool IsKey(std::string_view key) {
  const size_t at = key.find('@');
  if (at == std::string_view::npos) return IsKeyPart(key, 256, /*digit_first=*/false);
  return IsKeyPart(key.substr(0, at), 241, /*digit_first=*/true) &&
         IsKeyPart(key.substr(at + 1), 14, /*digit_first=*/false);
}

bool IsValue(std::string_view value) {
  return !value.empty() && value.size() <= 256 && value.back() != ' ' &&
         std::ranges::all_of(value,
                             [](char c) { return c >= ' ' && c <= '~' && c != ',' && c != '='; });
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// Adds the members of one header to those of others before.
bool AddMembers(std::string_view text, std::vector<std::string_view>& members,
                std::set<std::string_view>& keys) {
  for (;;) {
    const size_t comma = text.find(',');
    const std::string_view member = Trimmed(text.substr(0, comma));
    if (!member.empty()) {
      const size_t equals = member.find('=');
      if (equals == std::string_view::npos) return false;
      const std::string_view key = member.substr(0, equals);
      if (!IsKey(key) || !IsValue(member.substr(equals + 1)) || !keys.insert(key).second ||
          members.size() == kMembers) {
        return false;
      }
      members.push_back(member);
    }
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

std::optional<std::string> ParseTracestate(std::span<const std::string_view> headers) {
  std::vector<std::string_view> members;
  std::set<std::string_view> keys;
  for (const std::string_view header : headers) {
    if (header.size() > 2 * kStateBytes || !AddMembers(header, members, keys)) return std::nullopt;
  }
  std::string list;
  for (const std::string_view member : members) {
    if (!list.empty()) list.push_back(',');
    list.append(member);
  }
  if (list.empty() || list.size() > kStateBytes) return std::nullopt;
  return list;
}

std::string_view View(grpc::string_ref text) { return {text.data(), text.size()}; }

}  // namespace

std::string TraceContext::traceparent() const {
  return absl::StrCat("00-", *trace_id, "-", *span_id, sampled ? "-01" : "-00");
}

TraceContext ParseTraceContext(std::span<const std::string_view> traceparents,
                               std::span<const std::string_view> tracestates) {
  TraceContext trace;
  if (traceparents.size() == 1 && ParseTraceparent(Trimmed(traceparents[0]), trace)) {
    trace.tracestate = ParseTracestate(tracestates);
  }
  return trace;
}

TraceContext TraceContextOf(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto parents = metadata.equal_range(kTraceparentKey);
  if (parents.first == parents.second) return {};
  std::vector<std::string_view> traceparents, tracestates;
  for (auto it = parents.first; it != parents.second; ++it)
    traceparents.push_back(View(it->second));
  const auto states = metadata.equal_range("tracestate");
  for (auto it = states.first; it != states.second; ++it) tracestates.push_back(View(it->second));
  return ParseTraceContext(traceparents, tracestates);
}

}  // namespace tetrad
