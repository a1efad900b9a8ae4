// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/status.h"

#include <gtest/gtest.h>

namespace tetrad {
namespace {

TEST(StatusTest, CodesAreOneToOne) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    const grpc::Status converted = ToGrpc(status);
    EXPECT_EQ(static_cast<int>(converted.error_code()), code);
    EXPECT_EQ(converted.error_message(), "text");
    EXPECT_EQ(CodeName(converted.error_code()), absl::StatusCodeToString(status.code()));
  }
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_EQ(CodeName(grpc::StatusCode::OK), "OK");
}

TEST(StatusTest, TextIsPrintableAscii) {
  EXPECT_EQ(ErrorText("group 3: k=100"), "group 3: k=100");
  EXPECT_EQ(ErrorText(std::string_view("a\nb\0c", 5)), "a\\x0Ab\\x00c");
  EXPECT_EQ(ErrorText("\xF0\x9F\x98\x80\xFF"), "\\xF0\\x9F\\x98\\x80\\xFF");
}

TEST(StatusTest, TextIsCappedAndSaysSo) {
  EXPECT_EQ(ErrorText("abcdef", 6), "abcdef");
  EXPECT_EQ(ErrorText("abcdefg", 6), "abcdef... (7 bytes in all)");
  EXPECT_EQ(ErrorText("abc\n", 6), "abc... (4 bytes in all)");
  const grpc::Status status = ToGrpc(absl::InternalError(std::string(100'000, '%')));
  EXPECT_LT(status.error_message().size() * 3, 8000u);
}

}  // namespace
}  // namespace tetrad
