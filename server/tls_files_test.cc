// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/tls_files.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/e2e/certificates.h"

namespace tetrad {
namespace {

using e2e::Authority;
using e2e::PemPair;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class TlsFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tetrad-tls-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    folder_ = pattern;
    config_.tls_certificate = folder_ + "/cert";
    config_.tls_key = folder_ + "/key";
    config_.tls_client_ca = folder_ + "/ca";
    Put(config_.tls_certificate, first_.certificate);
    Put(config_.tls_key, first_.key);
    Put(config_.tls_client_ca, authority_.certificate());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static void Put(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    ::chmod(path.c_str(), 0600);
  }
  std::unique_ptr<TlsFiles> Open() {
    auto files = TlsFiles::Open(config_, log_);
    EXPECT_TRUE(files.ok()) << files.status();
    return *std::move(files);
  }
  std::string Refusal() {
    const absl::Status status = TlsFiles::Open(config_, log_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  // Reloads; what was logged.
  std::string Reload(TlsFiles& files) {
    ::testing::internal::CaptureStderr();
    files.Reload(log_);
    return ::testing::internal::GetCapturedStderr();
  }

  const Authority authority_{"ca"};
  const PemPair first_ = e2e::IssueForDaemon(authority_), second_ = e2e::IssueForDaemon(authority_);
  std::string folder_;
  Config config_;
  Log log_{LogFormat::kLogfmt, LogLevel::kInfo};
};

TEST_F(TlsFilesTest, WhatIsInOrderIsServed) {
  const auto files = Open();
  EXPECT_EQ(files->current()->certificate, first_.certificate);
  EXPECT_EQ(files->current()->key, first_.key);
  EXPECT_EQ(files->current()->client_ca, authority_.certificate());
  EXPECT_EQ(Reload(*files), "");
  EXPECT_FALSE(files->refused());
}

TEST_F(TlsFilesTest, OldPairServesUntilBothFilesOfTheNewOneAreThere) {
  const auto files = Open();
  Put(config_.tls_certificate, second_.certificate);
  EXPECT_THAT(Reload(*files), HasSubstr("is not the key of the first certificate"));
  EXPECT_TRUE(files->refused());
  EXPECT_EQ(Reload(*files), "") << "told once";
  EXPECT_TRUE(files->refused()) << "told once, and still so";
  EXPECT_EQ(files->current()->certificate, first_.certificate);
  Put(config_.tls_key, second_.key);
  EXPECT_THAT(Reload(*files), HasSubstr("TLS files read"));
  EXPECT_EQ(files->current()->certificate, second_.certificate);
  EXPECT_EQ(files->current()->key, second_.key);
  EXPECT_FALSE(files->refused());
}

TEST_F(TlsFilesTest, SaysWhenTheServedCertificateExpires) {
  const absl::Time ends = absl::FromUnixSeconds(4'000'000'000);
  const PemPair pair =
      authority_.Issue({.common_name = "x", .begins = absl::Now() - absl::Hours(1), .ends = ends});
  Put(config_.tls_certificate, pair.certificate);
  Put(config_.tls_key, pair.key);
  const auto files = Open();
  EXPECT_EQ(files->current()->expires, ends);
  Put(config_.tls_certificate, second_.certificate);
  Reload(*files);
  EXPECT_EQ(files->current()->expires, ends) << "that of what is served";
}

TEST_F(TlsFilesTest, OldFilesServeWhileNewOnesAreGoneOrRubbish) {
  const auto files = Open();
  for (const std::string* path :
       {&config_.tls_certificate, &config_.tls_key, &config_.tls_client_ca}) {
    const auto before = files->current();
    std::ifstream stream(*path);
    const std::string good{std::istreambuf_iterator<char>(stream), {}};
    std::filesystem::remove(*path);
    EXPECT_THAT(Reload(*files), HasSubstr("cannot be read: No such file"));
    for (const std::string& rubbish :
         {std::string(), std::string("rubbish"), good.substr(0, good.size() / 2),
          std::string(good).replace(good.size() / 2, 8, "\0!!!!!!!", 8),
          std::string((1 << 20) + 1, '-')}) {
      Put(*path, rubbish);
      EXPECT_THAT(Reload(*files), HasSubstr("TLS files refused")) << *path;
      EXPECT_EQ(Reload(*files), "") << "told once";
      EXPECT_EQ(files->current(), before);
    }
    Put(*path, good);
    EXPECT_THAT(Reload(*files), HasSubstr("TLS files read"));
    EXPECT_EQ(files->current()->certificate, before->certificate);
  }
}

TEST_F(TlsFilesTest, StartRefusesWithOptionAndFile) {
  Put(config_.tls_key, second_.key);
  EXPECT_THAT(Refusal(), HasSubstr("tls_key: " + config_.tls_key));
  std::filesystem::remove(config_.tls_key);
  EXPECT_THAT(Refusal(), HasSubstr("tls_key: " + config_.tls_key + ": cannot be read"));
  Put(config_.tls_key, first_.key);
  Put(config_.tls_certificate, first_.certificate + "-----BEGIN CERTIFICATE-----\nx\n");
  EXPECT_THAT(Refusal(), HasSubstr("tls_certificate: " + config_.tls_certificate));
  Put(config_.tls_certificate, first_.certificate);
  Put(config_.tls_client_ca, first_.key);
  EXPECT_THAT(Refusal(), HasSubstr("tls_client_ca: " + config_.tls_client_ca));
  config_.tls_client_ca = folder_;
  EXPECT_THAT(Refusal(), HasSubstr("is not a regular file"));
}

TEST_F(TlsFilesTest, OpenKeysAndExpiredCertificatesAreWarnedOf) {
  ::testing::internal::CaptureStderr();
  Open();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  ::chmod(config_.tls_key.c_str(), 0640);
  ::testing::internal::CaptureStderr();
  Open();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("open to others"));
  const PemPair old = authority_.Issue({.common_name = "old",
                                        .begins = absl::Now() - absl::Hours(2),
                                        .ends = absl::Now() - absl::Hours(1)});
  Put(config_.tls_certificate, old.certificate);
  Put(config_.tls_key, old.key);
  ::testing::internal::CaptureStderr();
  Open();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("has expired"));
}

TEST(CheckTlsOptionsTest, WrongCombinationsNameTheOptions) {
  const struct {
    Config config;
    const char* message;
  } kCases[] = {
      {{.tls_certificate = "c"}, "tls_certificate needs tls_key"},
      {{.tls_key = "k"}, "tls_key needs tls_certificate"},
      {{.tls_client_ca = "a"}, "tls_client_ca needs tls_certificate"},
      {{.tls_certificate = "c", .tls_key = "k", .tls_require_client = true},
       "tls_require_client needs tls_client_ca"},
  };
  for (const auto& test : kCases) {
    const absl::Status status = CheckTlsOptions(test.config);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), test.message);
  }
  EXPECT_TRUE(CheckTlsOptions({}).ok());
  EXPECT_TRUE(CheckTlsOptions({.tls_certificate = "c", .tls_key = "k", .tls_client_ca = "a"}).ok());
}

}  // namespace
}  // namespace tetrad
