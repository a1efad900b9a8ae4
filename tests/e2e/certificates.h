// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Certificates for tests, made on the spot. A failure ends the program.
#pragma once

#include <memory>
#include <string>

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tetrad::e2e {

struct PemPair {
  std::string certificate;
  std::string key;
};

struct CertificateWish {
  std::string common_name = {};        // empty: none
  std::string alternative_names = {};  // as OpenSSL writes them: "DNS:localhost,IP:127.0.0.1"
  absl::Time begins = absl::Now() - absl::Hours(1);
  absl::Time ends = absl::Now() + absl::Hours(24);
};

class Authority {
 public:
  explicit Authority(const std::string& name);
  // As operators hand it to those who trust it.
  const std::string& certificate() const { return pems_.certificate; }
  PemPair Issue(const CertificateWish& wish) const;
  // A certificate that nobody but itself vouches for.
  static PemPair SelfSigned(const CertificateWish& wish);

 private:
  struct Freer {
    void operator()(X509* certificate) const { ::X509_free(certificate); }
    void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
  };
  using CertificatePtr = std::unique_ptr<X509, Freer>;
  using KeyPtr = std::unique_ptr<EVP_PKEY, Freer>;

  static KeyPtr NewKey();
  // Signed by `issuer`, null: by itself.
  static CertificatePtr Make(const CertificateWish& wish, EVP_PKEY* key, const Authority* issuer,
                             bool authority);
  static PemPair ToPem(X509* certificate, EVP_PKEY* key);

  KeyPtr key_;
  CertificatePtr certificate_;
  PemPair pems_;
};

// The certificate a daemon of a test has: for 127.0.0.1 and localhost.
PemPair IssueForDaemon(const Authority& authority);

}  // namespace tetrad::e2e
