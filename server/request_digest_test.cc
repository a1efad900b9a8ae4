// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/request_digest.h"

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "tetrad/v1/gemm.pb.h"

namespace tetrad {
namespace {

std::string Hex(const RequestDigest& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

// What sha256sum says of the message's bytes: 0a 03 'p' '-' '1'.
TEST(RequestDigestTest, IsSha256OfTheSerialisedMessage) {
  v1::ExecuteRequest request;
  EXPECT_EQ(Hex(DigestOf(request)),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  request.set_plan("p-1");
  EXPECT_EQ(Hex(DigestOf(request)),
            "4c98cd2c33145a4ed619512ae73f74bd3a44336e160a1746f029ebc2f9ad4233");
}

TEST(RequestDigestTest, EveryByteOfLargeOperandsCounts) {
  v1::ExecuteRequest request;
  std::string& activations = *request.mutable_inline_operands()->mutable_activations();
  activations.assign(300'000, 'x');
  const RequestDigest before = DigestOf(request);
  EXPECT_EQ(DigestOf(request), before);
  for (const size_t at : {size_t{0}, size_t{65'535}, size_t{65'536}, activations.size() - 1}) {
    activations[at] ^= 1;
    EXPECT_NE(DigestOf(request), before) << at;
    activations[at] ^= 1;
  }
  EXPECT_EQ(DigestOf(request), before);
  request.set_priority(v1::PRIORITY_HIGH);
  EXPECT_NE(DigestOf(request), before);
}

}  // namespace
}  // namespace tetrad
