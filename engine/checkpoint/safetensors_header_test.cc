// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/safetensors_header.h"

#include <ctime>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/heap_meter.h"

namespace tetrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return absl::StrCat(R"(")", name, R"(":{"dtype":")", dtype, R"(","shape":)", shape,
                      R"(,"data_offsets":)", offsets, "}");
}

std::string Object(const std::string& inside) { return absl::StrCat("{", inside, "}"); }

// `text` over and over, at least `bytes` long.
std::string Repeated(const std::string& text, size_t bytes) {
  std::string all;
  all.reserve(bytes + text.size());
  while (all.size() < bytes) all += text;
  return all;
}

std::string A(const std::string& offsets) { return Entry("a", "U8", "[4]", offsets); }
std::string B(const std::string& offsets) { return Entry("b", "U8", "[4]", offsets); }

TEST(SafetensorsHeaderTest, LegalHeadersLoad) {
  const struct {
    const char* what;
    std::string json;
    uint64_t data_bytes;
    size_t tensors;
  } cases[] = {
      {"no tensors", "{}", 0, 0},
      {"empty metadata", Object(R"("__metadata__":{})"), 0, 0},
      {"metadata between tensors",
       Object(A("[0,4]") + R"(,"__metadata__":{"format":"pt","":""},)" + B("[4,8]")), 8, 2},
      {"not in offset order", Object(A("[4,8]") + "," + B("[0,4]")), 8, 2},
      {"zero elements, between others",
       Object(A("[0,4]") + "," + Entry("z", "F32", "[0,7]", "[4,4]") + "," + B("[4,8]")), 8, 3},
      {"zero elements at both ends",
       Object(Entry("y", "F32", "[0]", "[0,0]") + "," + A("[0,4]") + "," +
              Entry("z", "F32", "[0]", "[4,4]")),
       4, 3},
      {"scalar", Object(Entry("s", "F32", "[]", "[0,4]")), 4, 1},
      {"trailing blanks", Object(A("[0,4]")) + "     \n\t ", 4, 1},
      {"blanks everywhere",
       " { \"a\" : { \"dtype\":\"U8\", \"shape\" : [ 4 ] ,"
       "\n\"data_offsets\": [ 0 , 4 ] } } ",
       4, 1},
      {"fields in any order", Object(R"("a":{"data_offsets":[0,4],"shape":[4],"dtype":"U8"})"), 4,
       1},
      {"unknown field with nesting",
       Object(R"("a":{"extra":{"x":[1,{"y":null}],"z":-1.5},"dtype":"U8","shape":[4],)"
              R"("data_offsets":[0,4]})"),
       4, 1},
      {"four-bit elements fill bytes", Object(Entry("a", "F4", "[3,2]", "[0,3]")), 3, 1},
      {"odd offsets",
       Object(Entry("a", "U8", "[3]", "[0,3]") + "," + Entry("b", "F32", "[1]", "[3,7]")), 7, 2},
      {"name of escapes", Object(Entry("\\u0000\\n\\ud83e\\udd80", "U8", "[4]", "[0,4]")), 4, 1},
      {"empty name", Object(Entry("", "U8", "[4]", "[0,4]")), 4, 1},
  };
  for (const auto& c : cases) {
    std::string json = c.json;
    if (json.front() == ' ') json.erase(0, 1);
    const auto header = SafetensorsHeader::Parse(json, c.data_bytes);
    ASSERT_TRUE(header.ok()) << c.what << ": " << header.status();
    EXPECT_EQ(header->size(), c.tensors) << c.what;
  }
}

TEST(SafetensorsHeaderTest, EveryIllegalHeaderHasItsOwnReasonAndTensor) {
  const std::string two64 = "18446744073709551616";
  const struct {
    std::string json;
    uint64_t data_bytes;
    const char* reason;
  } cases[] = {
      {"", 0, "does not start with '{'"},
      {"[]", 0, "does not start with '{'"},
      {" {}", 0, "does not start with '{'"},
      {"{", 0, "not well-formed JSON"},
      {"{}x", 0, "not well-formed JSON"},
      {std::string("{}\0", 3), 0, "NUL byte at byte 2"},
      {"{}{}", 0, "not well-formed JSON"},
      {Object(A("[0,4]") + ","), 4, "not well-formed JSON"},
      {"{\"\xFF\xFE\":1}", 0, "not UTF-8 at byte 2"},
      {Object(R"("\ud800":1)"), 0, "not well-formed JSON"},
      {Object(A("[0,4]") + "," + A("[4,8]")), 8, "tensor `a` appears twice"},
      {Object(A("[0,4]") + "," + B("[0,4]")), 8, "overlaps tensor `"},
      {Object(A("[0,4]") + "," + B("[3,7]")), 7,
       "tensor `b` starts at byte 3 of the data and overlaps tensor `a`, which ends at 4"},
      {Object(A("[0,4]") + "," + Entry("z", "U8", "[0]", "[2,2]")), 4, "overlaps tensor `a`"},
      {Object(A("[0,4]") + "," + B("[5,9]")), 9, "hole of 1 bytes in the data before tensor `b`"},
      {Object(A("[1,5]")), 5, "hole of 1 bytes in the data before tensor `a`"},
      {Object(A("[0,4]")), 6, "2 bytes after the last tensor, tensor `a`"},
      {"{}", 1, "1 bytes after the last tensor"},
      {Object(A("[0,4]")), 3, "tensor `a`: ends at byte 4 of the data, but the file has 3"},
      {Object(R"("__metadata__":{"step":7})"), 0, "`__metadata__` value of `step` is a number"},
      {Object(R"("__metadata__":{"x":null})"), 0, "value of `x` is true, false or null"},
      {Object(R"("__metadata__":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})"), 4,
       "`__metadata__` value of `shape` is an array"},
      {Object(R"("__metadata__":[])"), 0, "`__metadata__` is an array"},
      {Object(R"("__metadata__":null)"), 0, "`__metadata__` is true, false or null"},
      {Object(R"("__metadata__":{},"__metadata__":{})"), 0, "`__metadata__` appears twice"},
      {Object(A("[-1,3]")), 4, "tensor `a`: data_offsets has a negative, fractional"},
      {Object(A("[-0,4]")), 4, "tensor `a`: data_offsets has a negative, fractional"},
      {Object(A("[0.0,4]")), 4, "tensor `a`: data_offsets has a negative, fractional"},
      {Object(A("[0,4e0]")), 4, "tensor `a`: data_offsets has a negative, fractional"},
      {Object(A("[0," + two64 + "]")), 4, "tensor `a`: data_offsets has a negative, fractional"},
      {Object(A("[0,1e999]")), 4, "number out of range"},
      {Object(A(R"(["0",4])")), 4, "tensor `a`: data_offsets has a string"},
      {Object(A("[0]")), 4, "tensor `a`: data_offsets must be two numbers"},
      {Object(A("[0,4,4]")), 4, "tensor `a`: data_offsets must be two numbers"},
      {Object(A("7")), 4, "tensor `a`: data_offsets has a number where an array"},
      {Object(A("[4,0]")), 4, "tensor `a`: data_offsets [4, 0] run backwards"},
      {Object(Entry("a", "U8", "[5]", "[0,4]")), 4,
       "tensor `a`: shape [5] of U8 needs 5 bytes, data_offsets give 4"},
      {Object(Entry("a", "F32", "[4]", "[0,4]")), 4, "shape [4] of F32 needs 16 bytes"},
      {Object(Entry("a", "U8", "[4294967296,4294967296]", "[0,4]")), 4,
       "tensor `a`: shape [4294967296, 4294967296] overflows 64 bits"},
      {Object(Entry("a", "F64", "[4611686018427387904]", "[0,4]")), 4, "overflows 64 bits"},
      {Object(Entry("a", "U8", "[4294967296,4294967296,0]", "[0,0]")), 0, "overflows 64 bits"},
      {Object(Entry("a", "U8", "[" + two64 + "]", "[0,4]")), 4,
       "tensor `a`: shape has a negative, fractional or too large number"},
      {Object(Entry("a", "U8", "[-4]", "[0,4]")), 4, "tensor `a`: shape has a negative"},
      {Object(Entry("a", "U8", "[[4]]", "[0,4]")), 4, "tensor `a`: shape has an array"},
      {Object(Entry("a", "U8", "{}", "[0,4]")), 4, "tensor `a`: shape has an object"},
      {Object(Entry("a", "F4", "[3]", "[0,1]")), 1, "does not fill whole bytes"},
      {Object(Entry("a", "F7", "[4]", "[0,4]")), 4, "tensor `a`: unknown dtype `F7`"},
      {Object(Entry("a", "u8", "[4]", "[0,4]")), 4, "tensor `a`: unknown dtype `u8`"},
      {Object(R"("a":{"dtype":8,"shape":[4],"data_offsets":[0,4]})"), 4,
       "tensor `a`: dtype has a number"},
      {Object(R"("a":{"shape":[4],"data_offsets":[0,4]})"), 4, "tensor `a`: dtype is missing"},
      {Object(R"("a":{"dtype":"U8","data_offsets":[0,4]})"), 4, "tensor `a`: shape is missing"},
      {Object(R"("a":{"dtype":"U8","shape":[4]})"), 4, "tensor `a`: data_offsets is missing"},
      {Object(R"("a":{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]})"), 4,
       "tensor `a`: dtype appears twice"},
      {Object(R"("a":[1])"), 0, "tensor `a` is an array where an object was expected"},
      {Object(R"("a":{"dtype":"U8",})"), 0, "not well-formed JSON"},
  };
  for (const auto& c : cases) {
    const auto header = SafetensorsHeader::Parse(c.json, c.data_bytes);
    ASSERT_FALSE(header.ok()) << c.json;
    EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << c.json;
    EXPECT_THAT(std::string(header.status().message()), HasSubstr(c.reason)) << c.json;
  }
}

TEST(SafetensorsHeaderTest, SyntaxErrorsNameTheTensorTheyAreIn) {
  const auto header = SafetensorsHeader::Parse(R"({"layer.7":{"dtype":tru)", 0);
  EXPECT_THAT(std::string(header.status().message()), HasSubstr("in tensor `layer.7`"));
}

TEST(SafetensorsHeaderTest, FindsTensorsByName) {
  const auto header = SafetensorsHeader::Parse(
      Object(Entry("b", "F32", "[2,1]", "[3,11]") + "," + Entry("a", "U8", "[3]", "[0,3]")), 11);
  ASSERT_TRUE(header.ok()) << header.status();
  const auto b = header->Find("b");
  ASSERT_TRUE(b.has_value());
  EXPECT_EQ(b->dtype, Dtype::kF32);
  EXPECT_THAT(b->shape, ElementsAre(2, 1));
  EXPECT_EQ(b->begin, 3u);
  EXPECT_EQ(b->bytes(), 8u);
  EXPECT_EQ(header->tensor(0).name, "a");
  EXPECT_FALSE(header->Find("").has_value());
  EXPECT_FALSE(header->Find("ab").has_value());
  EXPECT_FALSE(header->Find("c").has_value());
}

TEST(SafetensorsHeaderTest, DtypesHaveTheSizesOfTheFormat) {
  const struct {
    const char* name;
    int bits;
  } cases[] = {{"BOOL", 8},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
               {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
               {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"F16", 16},    {"BF16", 16},
               {"I32", 32},        {"U32", 32},        {"F32", 32},    {"C64", 64},    {"F64", 64},
               {"I64", 64},        {"U64", 64}};
  for (const auto& c : cases) {
    const auto header = SafetensorsHeader::Parse(
        Object(Entry("a", c.name, "[8]", absl::StrCat("[0,", c.bits, "]"))), c.bits);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(DtypeName(header->tensor(0).dtype), c.name);
    EXPECT_EQ(DtypeBits(header->tensor(0).dtype), c.bits);
  }
}

TEST(SafetensorsHeaderTest, LongAndStrangeNamesStayShortInMessages) {
  const std::string name(100'000, 'n');
  const auto header = SafetensorsHeader::Parse(Object(Entry(name, "U8", "[4]", "[0,5]")), 5);
  ASSERT_FALSE(header.ok());
  EXPECT_LT(header.status().message().size(), 1000u);
  EXPECT_THAT(std::string(header.status().message()), HasSubstr("(100000 bytes)"));
}

// Time and memory of headers made to cost much. The bound on memory is what the header's comment
// promises; the one on time is loose, for sanitizers.
TEST(SafetensorsHeaderTest, HostileHeadersCostNoMoreThanTheirSize) {
  constexpr size_t kBytes = 8'000'000;
  const std::string zeros = absl::StrCat("[0", Repeated(",0", 62), "]");
  std::string many = "{";
  std::string wide = "{";
  for (size_t i = 0; many.size() < kBytes; ++i) {
    absl::StrAppend(&many, i == 0 ? "" : ",", Entry(absl::StrCat(i), "U8", "[0]", "[0,0]"));
  }
  for (size_t i = 0; wide.size() < kBytes; ++i) {
    absl::StrAppend(&wide, i == 0 ? "" : ",", Entry(absl::StrCat(i), "U8", zeros, "[0,0]"));
  }
  const std::string long_entry = Entry(Repeated("n", kBytes / 1000), "U8", "[0]", "[0,0]");
  const struct {
    const char* what;
    std::string json;
    const char* reason;  // nullptr: legal
  } cases[] = {
      {"many tensors", many + "}", nullptr},
      {"many dimensions", wide + "}", nullptr},
      {"deep arrays", absl::StrCat(R"({"a":{"x":)", Repeated("[", kBytes)), "nested deeper"},
      {"deep objects", Repeated(R"({"a":)", kBytes), "nested deeper"},
      {"digits", absl::StrCat(R"({"a":{"shape":[)", Repeated("9", kBytes)), "out of range"},
      {"decimals", absl::StrCat(R"({"a":{"shape":[0.)", Repeated("0", kBytes)), "fractional"},
      {"a name without end", absl::StrCat("{\"", Repeated("n", kBytes)), "not well-formed"},
      {"control characters", absl::StrCat("{\"", Repeated("\x01", kBytes)), "not well-formed"},
      {"escapes", absl::StrCat(R"({"a":")", Repeated("\\", kBytes)), "not well-formed"},
      {"blanks", absl::StrCat("{", Repeated(" ", kBytes)), "not well-formed"},
      {"one name 1000 times",
       absl::StrCat("{", Repeated(long_entry + ",", kBytes), long_entry, "}"), "appears twice"},
  };
  for (const auto& c : cases) {
    const ::tetrad::testing::HeapMeter meter;
    const std::clock_t start = std::clock();  // of this process, whatever else the machine does
    const auto header = SafetensorsHeader::Parse(c.json, 0);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_LT(meter.peak(), 10 * c.json.size()) << c.what;
    EXPECT_LT(seconds, 20) << c.what;
    RecordProperty(std::string(c.what), static_cast<int>(100 * meter.peak() / c.json.size()));
    if (c.reason == nullptr) {
      EXPECT_TRUE(header.ok()) << c.what << ": " << header.status();
    } else {
      ASSERT_FALSE(header.ok()) << c.what;
      EXPECT_THAT(std::string(header.status().message()), HasSubstr(c.reason)) << c.what;
      EXPECT_LT(header.status().message().size(), 1000u) << c.what;
    }
  }
}

}  // namespace
}  // namespace tetrad
