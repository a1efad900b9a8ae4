// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/certificates.h"

#include <cstdio>
#include <cstdlib>

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

namespace tetrad::e2e {
namespace {

void Must(bool done, const char* what) {
  if (done) return;
  std::fprintf(stderr, "certificates: %s failed\n", what);
  ::ERR_print_errors_fp(stderr);
  std::abort();
}

void AddExtension(X509* certificate, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = ::X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  Must(extension != nullptr && ::X509_add_ext(certificate, extension, -1) == 1, value);
  ::X509_EXTENSION_free(extension);
}

template <typename Write>
std::string Pem(Write write) {
  BIO* const bio = ::BIO_new(::BIO_s_mem());
  Must(bio != nullptr && write(bio) == 1, "writing PEM");
  char* data = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(bio, &data));
  std::string text(data, size);
  ::BIO_free(bio);
  return text;
}

}  // namespace

Authority::KeyPtr Authority::NewKey() {
  KeyPtr key(EVP_EC_gen("P-256"));
  Must(key != nullptr, "making a key");
  return key;
}

Authority::CertificatePtr Authority::Make(const CertificateWish& wish, EVP_PKEY* key,
                                          const Authority* issuer, bool authority) {
  CertificatePtr made(::X509_new());
  X509* const certificate = made.get();
  ::X509_set_version(certificate, X509_VERSION_3);
  uint64_t serial = 0;
  ::RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial));
  ::ASN1_INTEGER_set_uint64(::X509_get_serialNumber(certificate), serial >> 1);
  const auto set_time = [](ASN1_TIME* out, absl::Time time) {
    Must(::ASN1_TIME_set(out, absl::ToTimeT(time)) != nullptr, "setting a time");
  };
  set_time(::X509_getm_notBefore(certificate), wish.begins);
  set_time(::X509_getm_notAfter(certificate), wish.ends);
  ::X509_set_pubkey(certificate, key);
  X509_NAME* const name = ::X509_get_subject_name(certificate);
  if (!wish.common_name.empty()) {
    Must(::X509_NAME_add_entry_by_txt(
             name, "CN", MBSTRING_UTF8,
             reinterpret_cast<const unsigned char*>(wish.common_name.data()),
             static_cast<int>(wish.common_name.size()), -1, 0) == 1,
         "setting the common name");
  }
  ::X509_set_issuer_name(
      certificate, issuer == nullptr ? name : ::X509_get_subject_name(issuer->certificate_.get()));
  AddExtension(certificate, NID_basic_constraints, authority ? "critical,CA:TRUE" : "CA:FALSE");
  if (!wish.alternative_names.empty()) {
    AddExtension(certificate, NID_subject_alt_name, wish.alternative_names.c_str());
  }
  Must(::X509_sign(certificate, issuer == nullptr ? key : issuer->key_.get(), ::EVP_sha256()) > 0,
       "signing");
  return made;
}

PemPair Authority::ToPem(X509* certificate, EVP_PKEY* key) {
  return {Pem([&](BIO* bio) { return ::PEM_write_bio_X509(bio, certificate); }), Pem([&](BIO* bio) {
            return ::PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

Authority::Authority(const std::string& name)
    : key_(NewKey()),
      certificate_(Make({.common_name = name}, key_.get(), nullptr, true)),
      pems_(ToPem(certificate_.get(), key_.get())) {}

PemPair Authority::Issue(const CertificateWish& wish) const {
  const KeyPtr key = NewKey();
  const CertificatePtr certificate = Make(wish, key.get(), this, false);
  return ToPem(certificate.get(), key.get());
}

PemPair Authority::SelfSigned(const CertificateWish& wish) {
  const KeyPtr key = NewKey();
  const CertificatePtr certificate = Make(wish, key.get(), nullptr, false);
  return ToPem(certificate.get(), key.get());
}

PemPair IssueForDaemon(const Authority& authority) {
  return authority.Issue(
      {.common_name = "daemon", .alternative_names = "DNS:localhost,IP:127.0.0.1"});
}

}  // namespace tetrad::e2e
