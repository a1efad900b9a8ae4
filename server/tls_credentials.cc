// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/tls_credentials.h"

#include <string>
#include <utility>

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

namespace tetrad {
namespace {

class Credentials final : public grpc::ServerCredentials {
 public:
  Credentials(const TlsFiles& files, bool require_client) : files_(files) {
    const bool ask = !files.current()->client_ca.empty();
    const auto request = !ask ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                         : require_client
                             ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                             : GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY;
    // Takes the options over.
    credentials_ = ::grpc_ssl_server_credentials_create_with_options(
        ::grpc_ssl_server_credentials_create_options_using_config_fetcher(request, Fetch, this));
  }
  ~Credentials() override { ::grpc_server_credentials_release(credentials_); }
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return ::grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // Called with a lock of the listener held.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& credentials = *static_cast<Credentials*>(self);
    std::shared_ptr<const TlsPems> pems = credentials.files_.current();
    if (pems == credentials.fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{pems->key.c_str(), pems->certificate.c_str()};
    // The library wants roots even if nothing is verified against them.
    const std::string& roots = pems->client_ca.empty() ? pems->certificate : pems->client_ca;
    *config = ::grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    credentials.fetched_ = std::move(pems);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const TlsFiles& files_;
  grpc_server_credentials* credentials_;
  std::shared_ptr<const TlsPems> fetched_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TlsFiles& files,
                                                        bool require_client) {
  return std::make_shared<Credentials>(files, require_client);
}

}  // namespace tetrad
