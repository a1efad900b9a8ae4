// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TLS listeners: whose certificates are taken by either side, that neither side
// falls back to plain text, and that certificates change under load.
#include <atomic>
#include <fstream>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "grpcpp/client_context.h"

#include "engine/support/unique_fd.h"
#include "tests/e2e/certificates.h"
#include "tests/e2e/memory_client.h"

namespace tetrad::e2e {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

class TlsTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }
  // In place, as a careless operator does it.
  std::string File(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name), std::ios::binary | std::ios::trunc) << text;
    return Path(name);
  }
  std::vector<std::string> Flags() const {
    return {"--tls-certificate", File("cert", own_.certificate), "--tls-key",
            File("key", own_.key)};
  }
  std::vector<std::string> MutualFlags(bool require) const {
    std::vector<std::string> flags = Flags();
    flags.insert(flags.end(), {"--tls-client-ca", File("ca", authority_.certificate())});
    if (require) flags.emplace_back("--tls-require-client");
    return flags;
  }
  static std::shared_ptr<grpc::ChannelCredentials> Trusting(const std::string& roots,
                                                            const PemPair& own = {}) {
    return grpc::SslCredentials({roots, own.key, own.certificate});
  }
  // Of a GetStatus on a connection of its own.
  static grpc::Status Call(const std::string& address,
                           const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    const Stubs stubs(Connect(address, credentials));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::GetStatusResponse response;
    return stubs.status->GetStatus(&context, {}, &response);
  }

  const TemporaryFolder folder_;
  const Authority authority_{"ca"}, stranger_{"ca"};
  const PemPair own_ = IssueForDaemon(authority_);
};

TEST_F(TlsTest, NeitherSideFallsBackToPlainText) {
  const Daemon secure(Flags()), plain;
  EXPECT_TRUE(Call(secure.tcp(), Trusting(authority_.certificate())).ok());
  EXPECT_TRUE(Call(secure.socket(), nullptr).ok()) << "sockets stay plain";
  EXPECT_TRUE(Call(plain.tcp(), nullptr).ok());
  EXPECT_EQ(Call(secure.tcp(), nullptr).error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(Call(plain.tcp(), Trusting(authority_.certificate())).error_code(),
            StatusCode::UNAVAILABLE);
  // And the listeners have survived that.
  EXPECT_TRUE(Call(secure.tcp(), Trusting(authority_.certificate())).ok());
  EXPECT_TRUE(Call(plain.tcp(), nullptr).ok());
}

TEST_F(TlsTest, ClientsRefuseADaemonTheyDoNotTrust) {
  const Daemon daemon(Flags());
  EXPECT_EQ(Call(daemon.tcp(), Trusting(stranger_.certificate())).error_code(),
            StatusCode::UNAVAILABLE);
  // Through the client library, which says what may be wrong.
  ClientOptions options;
  options.tls = TlsOptions{.root_certificates_file = File("roots", authority_.certificate())};
  EXPECT_TRUE(Client::Connect(daemon.tcp(), options).ok());
  options.tls->server_name = "localhost";
  EXPECT_TRUE(Client::Connect(daemon.tcp(), options).ok());
  options.tls->server_name = "elsewhere.example";
  const absl::Status elsewhere = Client::Connect(daemon.tcp(), options).status();
  EXPECT_EQ(elsewhere.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("certificate"));
  options.tls->server_name.clear();
  options.tls->root_certificates_file = File("roots", stranger_.certificate());
  EXPECT_EQ(Client::Connect(daemon.tcp(), options).status().code(), absl::StatusCode::kUnavailable);
  options.tls->root_certificates_file = File("roots", "rubbish");
  EXPECT_EQ(Client::Connect(daemon.tcp(), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(TlsTest, DaemonRefusesCertificatesItDoesNotTrust) {
  const Daemon asking(MutualFlags(false)), requiring(MutualFlags(true));
  const std::string& roots = authority_.certificate();
  const absl::Time now = absl::Now();
  const struct {
    const char* name;
    PemPair pair;
    bool taken;
    bool taken_if_required;
  } kCases[] = {
      {"of the authority", authority_.Issue({.common_name = "good"}), true, true},
      {"none", {}, true, false},
      {"expired",
       authority_.Issue(
           {.common_name = "good", .begins = now - absl::Hours(2), .ends = now - absl::Hours(1)}),
       false, false},
      {"not yet valid",
       authority_.Issue(
           {.common_name = "good", .begins = now + absl::Hours(1), .ends = now + absl::Hours(2)}),
       false, false},
      {"self-signed", Authority::SelfSigned({.common_name = "good"}), false, false},
      {"of another authority of that name", stranger_.Issue({.common_name = "good"}), false, false},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Call(asking.tcp(), Trusting(roots, test.pair)).ok(), test.taken) << test.name;
    EXPECT_EQ(Call(requiring.tcp(), Trusting(roots, test.pair)).ok(), test.taken_if_required)
        << test.name;
  }
  EXPECT_TRUE(Call(requiring.socket(), nullptr).ok());
}

TEST_F(TlsTest, SubjectIsTheFirstUsableName) {
  std::vector<std::string> flags = MutualFlags(true);
  flags.insert(flags.end(), {"--log-level", "debug"});
  const Daemon daemon(flags);
  const std::string bad(64, ' ');  // a common name has at most 64 characters
  const struct {
    CertificateWish wish;
    const char* client;
  } kCases[] = {
      {{.common_name = "trainer-1", .alternative_names = "DNS:host.example"}, "tls:trainer-1"},
      {{.alternative_names = "DNS:host.example,URI:spiffe://x/y"}, "tls:spiffe://x/y"},
      {{.alternative_names = "DNS:host.example"}, "tls:host.example"},
      {{.common_name = "a b", .alternative_names = "DNS:other.example"}, "tls:other.example"},
      {{.common_name = "evil\nclient=root"}, "anonymous@tcp"},
      {{.common_name = bad}, "anonymous@tcp"},
  };
  for (const auto& test : kCases) {
    const size_t before = daemon.Log().size();
    ASSERT_TRUE(
        Call(daemon.tcp(), Trusting(authority_.certificate(), authority_.Issue(test.wish))).ok());
    EXPECT_TRUE(Eventually([&] {
      return daemon.Log().find(absl::StrCat("client=", test.client, " "), before) !=
             std::string::npos;
    })) << test.client;
  }
}

// Whether a handshake of exactly this version succeeds.
bool Handshake(const std::string& address, int version) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return false;
  SSL_CTX* const context = ::SSL_CTX_new(::TLS_client_method());
  SSL_CTX_set_min_proto_version(context, version);
  SSL_CTX_set_max_proto_version(context, version);
  // Or the client's own library would refuse the old versions.
  ::SSL_CTX_set_cipher_list(context, "ALL:@SECLEVEL=0");
  const unsigned char protocols[] = "\x02h2";
  ::SSL_CTX_set_alpn_protos(context, protocols, 3);
  SSL* const ssl = ::SSL_new(context);
  ::SSL_set_fd(ssl, socket.get());
  const bool done = ::SSL_connect(ssl) == 1;
  ::SSL_free(ssl);
  ::SSL_CTX_free(context);
  return done;
}

TEST_F(TlsTest, OldVersionsAreRefused) {
  const Daemon daemon(Flags());
  EXPECT_TRUE(Handshake(daemon.tcp(), TLS1_3_VERSION));
  EXPECT_TRUE(Handshake(daemon.tcp(), TLS1_2_VERSION));
  EXPECT_FALSE(Handshake(daemon.tcp(), TLS1_1_VERSION));
  EXPECT_FALSE(Handshake(daemon.tcp(), TLS1_VERSION));
}

// The certificate that a handshake shows is the new one when the log says so.
TEST_F(TlsTest, CertificatesChangeUnderLoadWithoutAFailedRequest) {
  const Daemon daemon(Flags());
  const Operands operands(kShapeT1, {.seed = 1});
  Register(Stubs(daemon), operands, "w");
  const v1::ExecuteRequest request = RequestOf(operands, "w");
  std::atomic<bool> stop{false};
  std::atomic<int> done{0}, failed{0};
  std::vector<std::jthread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      while (!stop) {
        // Some connections stay, some are new at each call.
        const Stubs stubs(Connect(daemon.tcp(), Trusting(authority_.certificate())));
        for (int i = 0; i < (c % 2 == 0 ? 1 : 50) && !stop; ++i) {
          grpc::ClientContext context;
          v1::ExecuteResponse response;
          const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
          if (!status.ok()) {
            ++failed;
            ADD_FAILURE() << status.error_message();
          }
          ++done;
        }
      }
    });
  }
  const auto reload = [&](const char* event) {
    const size_t before = daemon.Log().size();
    daemon.Signal(SIGHUP);
    EXPECT_TRUE(Eventually([&] { return daemon.Log().find(event, before) != std::string::npos; }))
        << event;
  };
  for (int rotation = 0; rotation < 6; ++rotation) {
    const PemPair next = IssueForDaemon(authority_);
    if (rotation % 3 == 1) {
      File("cert", "rubbish");
      reload("TLS files refused");
    }
    if (rotation % 3 == 2) {
      std::remove(Path("key").c_str());
      reload("TLS files refused");
    }
    File("cert", next.certificate);
    reload("TLS files refused");  // the key is still the old one
    const int before = done;
    EXPECT_TRUE(Eventually([&] { return done >= before + 20; }));
    File("key", next.key);
    reload("TLS files read");
    const int after = done;
    EXPECT_TRUE(Eventually([&] { return done >= after + 20; }));
  }
  // Another authority: whoever connects from now on must trust it.
  const PemPair other = IssueForDaemon(stranger_);
  stop = true;
  clients.clear();
  File("key", other.key);
  File("cert", other.certificate);
  reload("TLS files read");
  EXPECT_TRUE(Call(daemon.tcp(), Trusting(stranger_.certificate())).ok());
  EXPECT_FALSE(Call(daemon.tcp(), Trusting(authority_.certificate())).ok());
  EXPECT_EQ(failed, 0) << "of " << done;
}

// Roots are replaced as well: a client of the old authority stays out.
TEST_F(TlsTest, ClientAuthorityChanges) {
  const Daemon daemon(MutualFlags(true));
  const PemPair old = authority_.Issue({.common_name = "old"});
  const PemPair young = stranger_.Issue({.common_name = "young"});
  const std::string& roots = authority_.certificate();
  EXPECT_TRUE(Call(daemon.tcp(), Trusting(roots, old)).ok());
  EXPECT_FALSE(Call(daemon.tcp(), Trusting(roots, young)).ok());
  File("ca", stranger_.certificate());
  daemon.Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return daemon.Log().find("TLS files read") != std::string::npos; }));
  EXPECT_FALSE(Call(daemon.tcp(), Trusting(roots, old)).ok());
  EXPECT_TRUE(Call(daemon.tcp(), Trusting(roots, young)).ok());
}

}  // namespace
}  // namespace tetrad::e2e
