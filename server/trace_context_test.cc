// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/trace_context.h"

#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace tetrad {
namespace {

using Texts = std::vector<std::string>;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kSpan[] = "00f067aa0ba902b7";
const std::string kGood = absl::StrCat("00-", kTrace, "-", kSpan, "-01");

TraceContext Parse(const Texts& parents, const Texts& states = {}) {
  const std::vector<std::string_view> a(parents.begin(), parents.end());
  const std::vector<std::string_view> b(states.begin(), states.end());
  return ParseTraceContext(a, b);
}

std::string With(size_t at, const std::string& text) {
  std::string changed = kGood;
  changed.replace(at, text.size(), text);
  return changed;
}

TEST(TraceContextTest, TraceparentsThatCount) {
  const struct {
    std::string sent;
    std::string understood;
  } kCases[] = {
      // The recommendation's own examples.
      {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""},
      {"00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", ""},
      {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", ""},
      {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", ""},
      // Flags of which this version knows nothing are not passed on.
      {With(53, "09"), kGood},
      {With(53, "ff"), kGood},
      {With(53, "08"), With(53, "00")},
      // Later versions: what this one knows of them.
      {With(0, "cc"), kGood},
      {With(0, "01") + "-what-the-future-will-be-like", kGood},
      {With(0, "01") + "-", kGood},
      {With(0, "fe"), kGood},
      // Blanks around a header's value are none of it.
      {" " + kGood + "\t", kGood},
  };
  for (const auto& test : kCases) {
    const TraceContext trace = Parse({test.sent});
    ASSERT_TRUE(trace.trace_id.has_value()) << test.sent;
    EXPECT_EQ(trace.traceparent(), test.understood.empty() ? test.sent : test.understood);
    EXPECT_EQ(trace.trace_id, trace.traceparent().substr(3, 32));
    EXPECT_EQ(trace.span_id, trace.traceparent().substr(36, 16));
    EXPECT_EQ(trace.sampled, trace.traceparent().back() == '1');
  }
}

TEST(TraceContextTest, TraceparentsThatDoNot) {
  const Texts kBad = {
      "",
      "00",
      kGood.substr(0, 54),
      kGood + "-",
      kGood + "-what-the-future-will-not-be-like",
      kGood + "0",
      With(0, "01") + ".",
      With(0, "01").substr(0, 54),
      With(0, "01") + "0",
      With(0, "ff"),
      With(0, "FE"),
      With(0, "0g"),
      With(0, "0 "),
      With(2, "_"),
      With(35, "_"),
      With(52, "_"),
      With(3, std::string(32, '0')),
      With(36, std::string(16, '0')),
      With(3, "4BF9"),
      With(3, "."),
      With(36, "."),
      With(36, "A"),
      With(53, ".0"),
      With(53, "0."),
      With(53, "0A"),
      With(20, std::string(1, '\0')),
      With(20, "\xC3\xA4"),
      With(0, "01") + "-" + std::string(5000, 'a'),
      kGood + "," + kGood,
  };
  for (const std::string& bad : kBad) {
    const TraceContext trace = Parse({bad}, {"a=1"});
    EXPECT_FALSE(trace.trace_id.has_value()) << bad;
    EXPECT_FALSE(trace.span_id.has_value()) << bad;
    EXPECT_FALSE(trace.tracestate.has_value()) << bad;
  }
  EXPECT_FALSE(Parse({}, {"a=1"}).tracestate.has_value());
  EXPECT_FALSE(Parse({kGood, kGood}).trace_id.has_value());
  EXPECT_FALSE(Parse({kGood, ""}).trace_id.has_value());
}

std::string Members(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) absl::StrAppend(&list, i == 0 ? "" : ",", "k", i, "=v");
  return list;
}

TEST(TraceContextTest, TracestatesAreListsOfKeysAndValues) {
  const struct {
    Texts sent;
    std::string understood;
  } kCases[] = {
      {{"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"}, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"},
      {{"rojo=1", "congo=2"}, "rojo=1,congo=2"},
      {{" a=1 ,\tb=2 , ,c=3,"}, "a=1,b=2,c=3"},
      {{"fw529a3039@dt=FfAd", "0a@b=x"}, "fw529a3039@dt=FfAd,0a@b=x"},
      {{"a_-*/9=! ~x"}, "a_-*/9=! ~x"},
      {{Members(32)}, Members(32)},
      {{std::string(256, 'k') + "=" + std::string(255, 'v')},
       std::string(256, 'k') + "=" + std::string(255, 'v')},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Parse({kGood}, test.sent).tracestate, test.understood) << test.sent[0];
  }
}

TEST(TraceContextTest, TracestatesOutOfFormAreLeftOutAlone) {
  const Texts kBad = {"",
                      ",",
                      "a",
                      "=1",
                      "a=",
                      "a =1",
                      "A=1",
                      "1a=1",
                      "a=1;b=2=3",
                      "a=\x01",
                      "a=\xC3\xA4",
                      std::string("a=b\0c", 5),
                      "a=1,a=2",
                      "a@=1",
                      "@b=1",
                      "a@1b=1",
                      "a@b@c=1",
                      "a=1 b=2",
                      std::string(257, 'k') + "=1",
                      std::string(242, 'k') + "@s=1",
                      "t@" + std::string(15, 's') + "=1",
                      "a=" + std::string(257, 'v'),
                      Members(33),
                      Members(100),
                      std::string(256, 'k') + "=" + std::string(256, 'v'),
                      std::string(100'000, ',')};
  for (const std::string& bad : kBad) {
    const TraceContext trace = Parse({kGood}, {bad});
    EXPECT_EQ(trace.trace_id, kTrace) << bad;
    EXPECT_FALSE(trace.tracestate.has_value()) << bad;
  }
  EXPECT_FALSE(Parse({kGood}, {"a=1", "A=2"}).tracestate.has_value());
}

// Whatever comes, what is taken can be logged, sent, and taken again as it is.
TEST(TraceContextTest, WhatIsTakenOfAnythingIsInForm) {
  std::mt19937_64 random(7);
  const auto below = [&random](size_t limit) { return static_cast<size_t>(random() % limit); };
  int taken = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string parent = kGood, state = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";
    for (std::string* text : {&parent, &state}) {
      for (size_t edits = below(4); edits > 0 && !text->empty(); --edits) {
        const size_t at = below(text->size());
        const char byte = below(2) == 0 ? "0-fA,=@ g"[below(9)] : static_cast<char>(below(256));
        switch (below(4)) {
          case 0:
            (*text)[at] = byte;
            break;
          case 1:
            text->insert(at, 1 + below(3), byte);
            break;
          case 2:
            text->erase(at, 1 + below(3));
            break;
          default:
            text->append(text->substr(at));
        }
      }
    }
    const TraceContext trace = Parse({parent}, {state});
    ASSERT_EQ(trace.trace_id.has_value(), trace.span_id.has_value());
    if (!trace.trace_id.has_value()) {
      ASSERT_FALSE(trace.tracestate.has_value());
      continue;
    }
    ++taken;
    const TraceContext again = Parse(
        {trace.traceparent()}, trace.tracestate.has_value() ? Texts{*trace.tracestate} : Texts{});
    ASSERT_EQ(trace.traceparent().size(), 55u) << parent;
    ASSERT_EQ(again.traceparent(), trace.traceparent()) << parent;
    ASSERT_EQ(again.tracestate, trace.tracestate) << state;
    ASSERT_LE(trace.tracestate.value_or("").size(), 512u);
  }
  EXPECT_GT(taken, 5'000);
}

}  // namespace
}  // namespace tetrad
