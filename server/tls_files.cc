// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/tls_files.h"

#include <ctime>
#include <utility>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "engine/support/status_macros.h"
#include "server/status.h"

namespace tetrad {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

struct Freer {
  void operator()(BIO* bio) const { ::BIO_free(bio); }
  void operator()(X509* certificate) const { ::X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
};
using BioPtr = std::unique_ptr<BIO, Freer>;
using X509Ptr = std::unique_ptr<X509, Freer>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freer>;

// A key that wants a pass phrase is refused: the terminal is not asked.
int NoPassPhrase(char*, int, int, void*) { return 0; }

absl::Status Error(const char* option, const WatchedFile& file, const char* what) {
  ::ERR_clear_error();
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": ", ErrorText(file.path(), 300), ": ", what));
}

BioPtr Memory(const std::string& text) {
  return BioPtr(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The first certificate; all that follow must be ones, too.
absl::StatusOr<X509Ptr> ReadCertificates(const char* option, const WatchedFile& file) {
  const BioPtr bio = Memory(*file.content());
  X509Ptr first(::PEM_read_bio_X509_AUX(bio.get(), nullptr, NoPassPhrase, nullptr));
  if (first == nullptr) return Error(option, file, "holds no certificate in PEM form");
  for (;;) {
    const X509Ptr next(::PEM_read_bio_X509(bio.get(), nullptr, NoPassPhrase, nullptr));
    if (next != nullptr) continue;
    const bool end = ERR_GET_REASON(::ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    if (!end) return Error(option, file, "holds a certificate that is damaged");
    ::ERR_clear_error();
    return first;
  }
}

}  // namespace

absl::Status CheckTlsOptions(const Config& config) {
  const bool tls = !config.tls_certificate.empty();
  if (tls && config.tls_key.empty()) {
    return absl::InvalidArgumentError("tls_certificate needs tls_key");
  }
  if (!tls && !config.tls_key.empty()) {
    return absl::InvalidArgumentError("tls_key needs tls_certificate");
  }
  if (!tls && !config.tls_client_ca.empty()) {
    return absl::InvalidArgumentError("tls_client_ca needs tls_certificate");
  }
  if (config.tls_require_client && config.tls_client_ca.empty()) {
    return absl::InvalidArgumentError("tls_require_client needs tls_client_ca");
  }
  return absl::OkStatus();
}

TlsFiles::TlsFiles(const Config& config)
    : certificate_(config.tls_certificate, kMaxFileBytes),
      key_(config.tls_key, kMaxFileBytes),
      client_ca_(config.tls_client_ca, kMaxFileBytes) {}

absl::StatusOr<std::unique_ptr<TlsFiles>> TlsFiles::Open(const Config& config, Log& log) {
  std::unique_ptr<TlsFiles> files(new TlsFiles(config));
  files->Look();
  TETRAD_ASSIGN_OR_RETURN(TlsPems pems, files->Check());
  files->Take(std::move(pems), log);
  return files;
}

bool TlsFiles::Look() {
  const bool certificate = certificate_.Look();
  const bool key = key_.Look();
  const bool client_ca = !client_ca_.path().empty() && client_ca_.Look();
  return certificate || key || client_ca;
}

absl::StatusOr<TlsPems> TlsFiles::Check() const {
  for (const auto& [option, file] : {std::pair{"tls_certificate", &certificate_},
                                     {"tls_key", &key_},
                                     {"tls_client_ca", &client_ca_}}) {
    if (file->path().empty() || file->content().ok()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", file->content().status().message()));
  }
  TETRAD_ASSIGN_OR_RETURN(const X509Ptr certificate,
                          ReadCertificates("tls_certificate", certificate_));
  const BioPtr bio = Memory(*key_.content());
  const KeyPtr key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassPhrase, nullptr));
  if (key == nullptr) {
    return Error("tls_key", key_, "holds no private key in PEM form without a pass phrase");
  }
  if (::X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Error("tls_key", key_, "is not the key of the first certificate of tls_certificate");
  }
  std::tm expires{};
  if (::ASN1_TIME_to_tm(::X509_get0_notAfter(certificate.get()), &expires) != 1) {
    return Error("tls_certificate", certificate_, "says no time at which it expires");
  }
  TlsPems pems{
      *certificate_.content(), *key_.content(), {}, absl::FromTM(expires, absl::UTCTimeZone())};
  if (client_ca_.path().empty()) return pems;
  TETRAD_RETURN_IF_ERROR(ReadCertificates("tls_client_ca", client_ca_).status());
  pems.client_ca = *client_ca_.content();
  return pems;
}

void TlsFiles::Take(TlsPems pems, Log& log) {
  struct stat info {};
  if (::stat(key_.path().c_str(), &info) == 0 && (info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    log.Warning("the private key is open to others", {{"tls_key", key_.path()}});
  }
  if (pems.expires < absl::Now()) {
    log.Warning("the certificate has expired", {{"tls_certificate", certificate_.path()}});
  }
  const std::lock_guard lock(mutex_);
  current_ = std::make_shared<const TlsPems>(std::move(pems));
}

void TlsFiles::Reload(Log& log) {
  if (!Look()) return;
  absl::StatusOr<TlsPems> pems = Check();
  refused_ = !pems.ok();
  if (!pems.ok()) {
    log.Error("TLS files refused, the old ones go on serving",
              {{"error", ToGrpc(pems.status()).error_message()}});
    return;
  }
  Take(*std::move(pems), log);
  log.Info("TLS files read", {{"tls_certificate", certificate_.path()}});
}

std::shared_ptr<const TlsPems> TlsFiles::current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

}  // namespace tetrad
