// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TLS and tokens of the client, against a daemon with a certificate made here.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "absl/strings/str_cat.h"

#include "clients/cpp/bearer_token.h"
#include "clients/cpp/channel.h"
#include "clients/cpp/client.h"
#include "clients/cpp/failing_daemon.h"

namespace tetrad {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Pem {
  std::string certificate, key;
};

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

// Signed by itself, for the name given, valid for an hour.
Pem SelfSigned(const std::string& name) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const x509 = X509_new();
  X509_set_version(x509, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), -60);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(x509, X509_get_subject_name(x509));
  X509_EXTENSION* const names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, ("DNS:" + name).c_str());
  X509_add_ext(x509, names, -1);
  X509_EXTENSION_free(names);
  X509_sign(x509, key, EVP_sha256());
  Pem pem;
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, x509);
  pem.certificate = Text(bio);
  bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  pem.key = Text(bio);
  X509_free(x509);
  EVP_PKEY_free(key);
  return pem;
}

class CredentialsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-credentials-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string File(const std::string& name, const std::string& text) const {
    const std::string path = absl::StrCat(folder_, "/", name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  std::string folder_;
};

std::shared_ptr<grpc::ServerCredentials> ServerTls(const Pem& pem, const std::string& client_ca) {
  grpc::SslServerCredentialsOptions options(
      client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                        : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_key_cert_pairs.push_back({pem.key, pem.certificate});
  options.pem_root_certs = client_ca;
  return grpc::SslServerCredentials(options);
}

TEST_F(CredentialsTest, TlsChecksTheDaemonAndItsName) {
  const Pem pem = SelfSigned("daemon.example");
  FailingDaemon daemon("127.0.0.1:0", ServerTls(pem, ""));
  const std::string endpoint = absl::StrCat("127.0.0.1:", daemon.port());
  const std::string ca = File("ca", pem.certificate);
  const auto connect = [&endpoint](const TlsOptions& tls) {
    return Client::Connect(endpoint, {.tls = tls, .token = "t0"});
  };
  auto client = connect({.root_certificates_file = ca, .server_name = "daemon.example"});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->GetStatus().ok());
  EXPECT_EQ(daemon.last_metadata().find("authorization")->second, "Bearer t0");
  EXPECT_FALSE(connect({.root_certificates_file = ca}).ok()) << "not for 127.0.0.1";
  EXPECT_FALSE(connect({.root_certificates_file = ca, .server_name = "other.example"}).ok());
  const std::string stranger = File("stranger", SelfSigned("daemon.example").certificate);
  EXPECT_FALSE(connect({.root_certificates_file = stranger, .server_name = "daemon.example"}).ok());
  EXPECT_FALSE(Client::Connect(endpoint, {.connect_timeout = absl::Seconds(1)}).ok()) << "plain";
}

TEST_F(CredentialsTest, TlsShowsTheClientsCertificate) {
  const Pem pem = SelfSigned("daemon.example"), own = SelfSigned("client");
  FailingDaemon daemon("127.0.0.1:0", ServerTls(pem, own.certificate));
  TlsOptions tls{.root_certificates_file = File("ca", pem.certificate),
                 .certificate_file = File("cert", own.certificate),
                 .key_file = File("key", own.key),
                 .server_name = "daemon.example"};
  const std::string endpoint = absl::StrCat("127.0.0.1:", daemon.port());
  const auto client = Client::Connect(endpoint, {.tls = tls});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->GetStatus().ok());
  tls.certificate_file.clear();
  tls.key_file.clear();
  // With TLS 1.3 the client hears that its certificate was missed by its first call.
  const auto without = Client::Connect(endpoint, {.attempts = 1, .tls = tls});
  EXPECT_FALSE(without.ok() && (*without)->GetStatus().ok());
}

TEST_F(CredentialsTest, FilesThatCannotBeUsedAreNamed) {
  const std::string text = File("text", "x");
  const std::string pem = File("pem", SelfSigned("any").certificate);
  const struct {
    TlsOptions tls;
    absl::StatusCode code;
    std::string message;
  } kCases[] = {
      {{.root_certificates_file = folder_ + "/none"}, absl::StatusCode::kNotFound, "/none"},
      {{.certificate_file = text}, absl::StatusCode::kInvalidArgument, "key_file"},
      {{.key_file = text}, absl::StatusCode::kInvalidArgument, "certificate_file"},
      {{.certificate_file = pem, .key_file = folder_ + "/none"},
       absl::StatusCode::kNotFound,
       "tls.key_file"},
      {{.certificate_file = text, .key_file = pem},
       absl::StatusCode::kInvalidArgument,
       "tls.certificate_file"},
      {{.root_certificates_file = "/dev/zero"}, absl::StatusCode::kFailedPrecondition, "/dev/zero"},
  };
  for (const auto& test : kCases) {
    const absl::Status status = MakeCredentials({.tls = test.tls}).status();
    EXPECT_EQ(status.code(), test.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.message));
  }
}

TEST_F(CredentialsTest, ATokenIsNotSentInTheClearToAnotherMachine) {
  const ClientOptions options{.connect_timeout = absl::Milliseconds(1), .token = "t0"};
  for (const char* there :
       {"192.0.2.1:1", "daemon.example:1", "[2001:db8::1]:1", "127.x:1", "localhost.example:1"}) {
    EXPECT_EQ(Client::Connect(there, options).status().code(),
              absl::StatusCode::kFailedPrecondition)
        << there;
  }
  for (const char* here : {"127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"}) {
    EXPECT_EQ(Client::Connect(here, options).status().code(), absl::StatusCode::kUnavailable)
        << here;
  }
}

TEST_F(CredentialsTest, TokensThatCannotBeSentAreRefusedUnquoted) {
  for (const std::string& bad :
       {std::string("two words"), std::string("line\nfeed"), std::string("\xC3\xA4"),
        std::string("nul\0", 4), std::string(4097, 'a')}) {
    const absl::Status given = BearerToken::Make(bad, "").status();
    EXPECT_EQ(given.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(given.message()), Not(HasSubstr(bad)));
    const absl::Status read = BearerToken::Make("", File("token", bad)).status();
    EXPECT_EQ(read.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(read.message()), HasSubstr(folder_ + "/token"));
  }
  EXPECT_EQ(BearerToken::Make("a", File("token", "b")).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BearerToken::Make("", File("empty", " \n")).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE((*BearerToken::Make("", ""))->empty());
  EXPECT_EQ((*BearerToken::Make("", File("token", " b64+/=~._-\n")))->Header(),
            "Bearer b64+/=~._-");
}

TEST_F(CredentialsTest, AReplacedTokenFileIsReadWhenTheOldTokenIsRefused) {
  FailingDaemon daemon("127.0.0.1:0");
  std::string wanted = "Bearer first";
  daemon.set_gate([&wanted](const FailingDaemon::Metadata& metadata) {
    const auto found = metadata.find("authorization");
    return found != metadata.end() && found->second == wanted
               ? grpc::Status::OK
               : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "unknown token");
  });
  const std::string file = File("token", "first\n");
  const auto client =
      Client::Connect(absl::StrCat("127.0.0.1:", daemon.port()), {.token_file = file});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE((*client)->Execute({}).ok());
  wanted = "Bearer second";
  EXPECT_EQ((*client)->Execute({}).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(daemon.calls(), 2) << "the same token is not shown twice";
  File("token", "second\n");
  EXPECT_TRUE((*client)->Execute({}).ok());
  EXPECT_EQ(daemon.calls(), 4);
  EXPECT_EQ((*client)->retries(), 1);
  // A load that had begun when the credential was withdrawn is not made again.
  wanted = "Bearer third";
  File("token", "third\n");
  v1::LoadRequest load;
  load.set_pattern("progress first");
  EXPECT_EQ((*client)->Load(load).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(daemon.calls(), 5);
  wanted = "Bearer fourth";
  std::filesystem::remove(file);
  EXPECT_EQ((*client)->Execute({}).status().code(), absl::StatusCode::kUnauthenticated);
}

}  // namespace
}  // namespace tetrad
