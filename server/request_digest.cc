// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/request_digest.h"

#include <memory>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <openssl/evp.h>

#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr int kPieceBytes = 64 << 10;

// Takes what is written to it into the digest, and keeps nothing.
class Sha256 final : public google::protobuf::io::CopyingOutputStream {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    TETRAD_CHECK(context_ != nullptr);
    TETRAD_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  bool Write(const void* data, int size) override {
    return EVP_DigestUpdate(context_.get(), data, static_cast<size_t>(size)) == 1;
  }
  RequestDigest Finish() {
    RequestDigest digest;
    TETRAD_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    return digest;
  }

 private:
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

RequestDigest DigestOf(const google::protobuf::MessageLite& request) {
  Sha256 sha;
  {
    google::protobuf::io::CopyingOutputStreamAdaptor pieces(&sha, kPieceBytes);
    google::protobuf::io::CodedOutputStream coded(&pieces);
    coded.SetSerializationDeterministic(true);
    TETRAD_CHECK(request.SerializeToCodedStream(&coded));
  }
  return sha.Finish();
}

}  // namespace tetrad
