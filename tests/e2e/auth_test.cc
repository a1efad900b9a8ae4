// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Who may call what: every method of the schema, over every kind of listener,
// for every kind of credential; and what happens to those whose credential goes.
#include <fstream>
#include <future>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>
#include <signal.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "grpcpp/client_context.h"

#include "tests/e2e/certificates.h"
#include "tests/e2e/memory_client.h"

namespace tetrad::e2e {
namespace {

using grpc::StatusCode;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Written out, so that a change of the daemon's own table is noticed.
const std::map<std::string, std::set<std::string>> kGroupsOfMethods = {
    {"tetrad.v1.Weights/Upload", {"operator"}},
    {"tetrad.v1.Weights/Load", {"operator"}},
    {"tetrad.v1.Weights/Seal", {"operator"}},
    {"tetrad.v1.Weights/Drop", {"operator"}},
    {"tetrad.v1.Weights/GetUpload", {"operator"}},
    {"tetrad.v1.Weights/List", {"client"}},
    {"tetrad.v1.Gemm/Prepare", {"client"}},
    {"tetrad.v1.Gemm/Execute", {"client"}},
    {"tetrad.v1.Gemm/ExecuteStream", {"client"}},
    {"tetrad.v1.Gemm/Submit", {"client"}},
    {"tetrad.v1.Gemm/Wait", {"client"}},
    {"tetrad.v1.Gemm/Watch", {"client"}},
    {"tetrad.v1.Gemm/Cancel", {"client"}},
    {"tetrad.v1.Gemm/Release", {"client"}},
    {"tetrad.v1.Memory/Attach", {"client"}},
    {"tetrad.v1.Memory/Detach", {"client"}},
    {"tetrad.v1.Memory/Allocate", {"client"}},
    {"tetrad.v1.Memory/Write", {"client"}},
    {"tetrad.v1.Memory/GetWrite", {"client"}},
    {"tetrad.v1.Memory/Read", {"client"}},
    {"tetrad.v1.Memory/Free", {"client"}},
    {"tetrad.v1.Memory/List", {"client"}},
    {"tetrad.v1.Status/GetStatus", {"client", "metrics"}},
    {"tetrad.v1.Admin/Drain", {"admin"}},
    {"tetrad.v1.Admin/SetLogLevel", {"admin"}},
    {"tetrad.v1.Admin/EndLease", {"admin"}},
};

std::string Digest(const std::string& token) {
  unsigned char digest[32];
  ::SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), sizeof(digest)});
}

std::string TokenEntry(const std::string& name, const std::string& more = "") {
  return absl::StrCat("[[tokens]]\nname = \"", name, "\"\nsha256 = \"", Digest(name + "-token"),
                      "\"\ngroups = [\"", name, "\"]\n", more, "\n");
}

constexpr char kAnonymous[] = "anonymous_unix = [\"client\"]\nanonymous_http = []\n";
std::string Tokens() {
  return absl::StrCat(TokenEntry("client"), TokenEntry("operator"), TokenEntry("admin"),
                      TokenEntry("metrics"));
}

void Put(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new", std::ios::binary) << text;
  ASSERT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
}

void Authorize(grpc::ClientContext& context, const std::string& header) {
  if (!header.empty()) context.AddMetadata("authorization", header);
}
std::string Bearer(const std::string& name) { return absl::StrCat("Bearer ", name, "-token"); }

// What an empty request to any method comes to. A stream of one message is on
// the wire what a unary call is.
StatusCode Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                const std::string& header) {
  grpc::ClientContext context;
  Authorize(context, header);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  if (method == "tetrad.v1.Memory/Attach") {  // which does not end by itself
    const auto reader = v1::Memory::NewStub(channel)->Attach(&context, {});
    v1::AttachEvent event;
    if (reader->Read(&event)) return StatusCode::OK;
    return reader->Finish().error_code();
  }
  grpc::GenericStub stub(channel);
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, "/" + method, grpc::StubOptions(), &request, &response,
                 [&ended](const grpc::Status& status) { ended.set_value(status); });
  return ended.get_future().get().error_code();
}

// Calls of everybody: the credential, and the groups it gives.
struct Identity {
  std::string header;  // empty: none
  std::set<std::string> groups = {};
  bool bad = false;
};

void ExpectMatrix(const std::shared_ptr<grpc::Channel>& channel, const std::string& transport,
                  const Identity& identity, bool known, int& protected_calls) {
  for (const auto& [method, wanted] : kGroupsOfMethods) {
    const bool allowed = std::ranges::any_of(
        wanted, [&](const std::string& group) { return identity.groups.contains(group); });
    if (allowed && !identity.bad && method == "tetrad.v1.Admin/Drain") continue;
    const StatusCode code = Call(channel, method, identity.header);
    if (code == StatusCode::UNIMPLEMENTED) continue;  // does nothing for anybody
    ++protected_calls;
    const std::string what = absl::StrCat(transport, " ", identity.header, " ", method);
    if (identity.bad) {
      EXPECT_EQ(code, StatusCode::UNAUTHENTICATED) << what;
    } else if (!allowed) {
      EXPECT_EQ(code, known ? StatusCode::PERMISSION_DENIED : StatusCode::UNAUTHENTICATED) << what;
    } else {
      EXPECT_THAT(code, AnyOf(StatusCode::OK, StatusCode::INVALID_ARGUMENT,
                              StatusCode::FAILED_PRECONDITION, StatusCode::NOT_FOUND))
          << what;
    }
  }
}

class AuthTest : public ::testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() + "/" + name;
    Put(path, text);
    return path;
  }
  // A new access file, taken.
  void Reload(const Daemon& daemon, const std::string& text) {
    const size_t before = daemon.Log().size();
    File("access", text);
    daemon.Signal(SIGHUP);
    ASSERT_TRUE(Eventually(
        [&] { return daemon.Log().find("event=\"access file", before) != std::string::npos; }));
  }
  const TemporaryFolder folder_;
  const Authority authority_{"ca"};
};

TEST_F(AuthTest, TheTableHasEveryMethodOfTheSchema) {
  std::set<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::ExecuteRequest::descriptor()->file(), v1::UploadRequest::descriptor()->file(),
        v1::AttachRequest::descriptor()->file(), v1::GetStatusRequest::descriptor()->file(),
        v1::DrainRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.insert(
            absl::StrCat(file->service(s)->full_name(), "/", file->service(s)->method(m)->name()));
      }
    }
  }
  for (const std::string& method : methods) {
    EXPECT_TRUE(kGroupsOfMethods.contains(method)) << method;
  }
  EXPECT_EQ(methods.size(), kGroupsOfMethods.size());
}

TEST_F(AuthTest, MatrixOfMethodIdentityAndTransport) {
  const std::string text = absl::StrCat(
      kAnonymous, Tokens(), "[[tokens]]\nname = \"old\"\nsha256 = \"", Digest("old-token"),
      "\"\ngroups = [\"client\", \"operator\", \"admin\", \"metrics\"]\n"
      "expires = 2020-01-01T00:00:00Z\n"
      "[[subjects]]\nname = \"listed\"\ngroups = [\"operator\", \"metrics\"]\n");
  const std::string access = File("access", text);
  const PemPair own = IssueForDaemon(authority_);
  const Daemon plain({"--access", access});
  const Daemon secure({"--access", access, "--tls-certificate", File("cert", own.certificate),
                       "--tls-key", File("key", own.key), "--tls-client-ca",
                       File("ca", authority_.certificate())});
  const auto tls = [&](const PemPair& client) {
    return grpc::SslCredentials({authority_.certificate(), client.key, client.certificate});
  };
  const struct {
    const char* name;
    std::shared_ptr<grpc::Channel> channel;
    std::set<std::string> own_groups;  // without another credential
    bool known;                        // a certificate says who it is
    bool decides;                      // and that counts before a token
  } kTransports[] = {
      {"unix", Connect(plain.socket()), {"client"}, false, false},
      {"tcp", Connect(plain.tcp()), {}, false, false},
      {"unix beside tls", Connect(secure.socket()), {"client"}, false, false},
      {"tls", Connect(secure.tcp(), tls({})), {}, false, false},
      {"mtls",
       Connect(secure.tcp(), tls(authority_.Issue({.common_name = "listed"}))),
       {"operator", "metrics"},
       true,
       true},
      {"mtls of a stranger",
       Connect(secure.tcp(), tls(authority_.Issue({.common_name = "x"}))),
       {},
       true,
       false},
  };
  int protected_calls = 0, identities = 0;
  for (const auto& transport : kTransports) {
    std::vector<Identity> all = {{"", transport.own_groups},
                                 {Bearer("unknown"), {}, true},
                                 {Bearer("old"), {}, true},
                                 {"Basic client-token", {}, true},
                                 {"Bearer", {}, true}};
    for (const char* group : {"client", "operator", "admin", "metrics"}) {
      all.push_back(
          {Bearer(group), transport.decides ? transport.own_groups : std::set<std::string>{group}});
    }
    for (const Identity& identity : all) {
      ++identities;
      const bool known = transport.known || !identity.header.empty();
      ExpectMatrix(transport.channel, transport.name, identity, known, protected_calls);
    }
  }
  EXPECT_GE(protected_calls, identities * 19);
}

TEST_F(AuthTest, RefusalsComeBeforeAnythingOfTheRequestIsLookedAt) {
  const Daemon daemon({"--access", File("access", Tokens())});
  const Stubs stubs(daemon);
  v1::ExecuteRequest request;  // which nobody could execute
  request.mutable_signature()->set_weights("no such weights");
  request.mutable_inline_operands()->set_activations(std::string(1 << 20, 'x'));
  grpc::ClientContext context;
  v1::ExecuteResponse response;
  const grpc::Status status = stubs.gemm->Execute(&context, request, &response);
  EXPECT_EQ(status.error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(status.error_message(), "tetrad.v1.Gemm/Execute needs a credential of group client");
}

TEST_F(AuthTest, WithdrawnTokenEndsNewCallsAndOpenStreams) {
  const Daemon daemon({"--access", File("access", Tokens())});
  const Stubs stubs(daemon);
  grpc::ClientContext attach_context, stream_context, other_context;
  Authorize(attach_context, Bearer("client"));
  Authorize(stream_context, Bearer("client"));
  Authorize(other_context, Bearer("client"));
  const auto attachment = stubs.memory->Attach(&attach_context, {});
  v1::AttachEvent event;
  ASSERT_TRUE(attachment->Read(&event));
  const auto stream = stubs.gemm->ExecuteStream(&stream_context);
  v1::ExecuteStreamRequest request;
  ASSERT_TRUE(stream->Write(request));  // is answered, so the stream is open for sure
  v1::ExecuteStreamResponse answer;
  ASSERT_TRUE(stream->Read(&answer));

  // Another group is another refusal.
  Reload(daemon, absl::StrCat(TokenEntry("operator"), "[[tokens]]\nname = \"client\"\nsha256 = \"",
                              Digest("client-token"), "\"\ngroups = [\"metrics\"]\n"));
  EXPECT_FALSE(attachment->Read(&event));
  EXPECT_EQ(attachment->Finish().error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::PERMISSION_DENIED);

  Reload(daemon, Tokens());
  const auto again = stubs.memory->Attach(&other_context, {});
  ASSERT_TRUE(again->Read(&event));
  Reload(daemon, TokenEntry("operator"));
  EXPECT_EQ(Call(stubs.channel, "tetrad.v1.Weights/List", Bearer("client")),
            StatusCode::UNAUTHENTICATED);
  EXPECT_FALSE(again->Read(&event));
  const grpc::Status ended = again->Finish();
  EXPECT_EQ(ended.error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ended.error_message(), "authorization: the token is not known");
  // A bad file changes nothing.
  Reload(daemon, "tokens = 3\n");
  EXPECT_EQ(Call(stubs.channel, "tetrad.v1.Weights/Seal", Bearer("operator")),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(daemon.Log(), HasSubstr("access file refused"));
}

TEST_F(AuthTest, OpenStreamEndsWhenItsTokenExpires) {
  const std::string expiry =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now() + absl::Seconds(6), absl::UTCTimeZone());
  const Daemon daemon({"--access", File("access", TokenEntry("client", "expires = " + expiry)),
                       "--reload-seconds", "1"});
  const Stubs stubs(daemon);
  grpc::ClientContext context;
  Authorize(context, Bearer("client"));
  const auto attachment = stubs.memory->Attach(&context, {});
  v1::AttachEvent event;
  // On a slow machine the token may have expired before.
  while (attachment->Read(&event)) {
  }
  const grpc::Status ended = attachment->Finish();
  EXPECT_EQ(ended.error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(ended.error_message(), "authorization: the token has expired");
}

TEST_F(AuthTest, RefusalsAreLoggedCountedAndCannotFillADisk) {
  const Daemon daemon({"--access", File("access", Tokens())});
  const Stubs stubs(daemon);
  EXPECT_EQ(Call(stubs.channel, "tetrad.v1.Weights/Drop", Bearer("client")),
            StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(daemon.Log(),
              HasSubstr("event=refused client=token:client method=tetrad.v1.Weights/Drop "
                        "reason=NOT_ALLOWED peer=unix: request="));
  for (int i = 0; i < 300; ++i) {
    Call(stubs.channel, "tetrad.v1.Weights/Drop", "Bearer s3cret");
  }
  const std::vector<std::string> lines = absl::StrSplit(daemon.Log(), '\n');
  const auto bad = std::ranges::count_if(lines, [](const std::string& line) {
    return line.find("reason=BAD_CREDENTIAL") != std::string::npos;
  });
  EXPECT_GE(bad, 20);
  EXPECT_LE(bad, 40);
  EXPECT_THAT(daemon.Log(), Not(HasSubstr("s3cret")));
  int code = 0;
  const std::string page =
      HttpGet(daemon.http(), "/metrics", &code, "Authorization: " + Bearer("metrics"));
  EXPECT_EQ(code, 200);
  EXPECT_THAT(page, HasSubstr("tetrad_refused_calls_total{reason=\"NOT_ALLOWED\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("tetrad_refused_calls_total{reason=\"BAD_CREDENTIAL\"} 300\n"));
}

TEST_F(AuthTest, MetricsPageNeedsItsGroupAndProbesNothing) {
  const Daemon daemon({"--access", File("access", Tokens())});
  const auto get = [&](const char* page, const std::string& header) {
    int code = 0;
    HttpGet(daemon.http(), page, &code, header);
    return code;
  };
  EXPECT_EQ(get("/healthz", ""), 200);
  EXPECT_EQ(get("/readyz", ""), 200);
  EXPECT_EQ(get("/metrics", ""), 401);
  EXPECT_EQ(get("/metrics", "Authorization: Bearer nobody"), 401);
  EXPECT_EQ(get("/metrics", "Authorization: " + Bearer("client")), 403);
  EXPECT_EQ(get("/metrics", "Authorization: " + Bearer("metrics")), 200);
  Reload(daemon, "anonymous_http = [\"metrics\"]\n");
  EXPECT_EQ(get("/metrics", ""), 200);
  const std::string refused = "tetrad_files_refused{files=\"access\"}";
  EXPECT_EQ(Metric(daemon, refused), 0);
  Reload(daemon, "tokens = 3\n");
  EXPECT_EQ(Metric(daemon, refused), 1);
  Reload(daemon, "anonymous_http = [\"metrics\"]\n");
  EXPECT_EQ(Metric(daemon, refused), 0);
}

TEST_F(AuthTest, ClientsOfTokensDoNotSeeEachOthersLeasesButAnAdminEndsThem) {
  const Daemon daemon({"--access", File("access", kAnonymous + Tokens())});
  ClientOptions options;
  options.token_file = File("token", "client-token\n");
  auto client = Client::Connect(daemon.socket(), options);
  ASSERT_TRUE(client.ok()) << client.status();
  auto attachment = (*client)->Attach();
  ASSERT_TRUE(attachment.ok()) << attachment.status();
  const std::string lease = (*attachment)->lease();
  const auto stranger = ConnectClient(daemon.socket());
  EXPECT_TRUE(absl::IsPermissionDenied(stranger->Detach(lease)));

  const Stubs stubs(daemon);
  v1::EndLeaseRequest request;
  request.set_lease(lease);
  v1::EndLeaseResponse response;
  {
    grpc::ClientContext context;
    Authorize(context, Bearer("admin"));
    ASSERT_TRUE(stubs.admin->EndLease(&context, request, &response).ok());
  }
  EXPECT_EQ(response.client(), "token:client");
  EXPECT_TRUE(Eventually([&] { return (*attachment)->lost().stop_requested(); }));
  grpc::ClientContext context;
  Authorize(context, Bearer("admin"));
  EXPECT_EQ(stubs.admin->EndLease(&context, request, &response).error_code(), StatusCode::ABORTED);
}

TEST_F(AuthTest, AdminSetsTheLogLevelAndDrains) {
  Daemon daemon;
  const Stubs stubs(daemon);
  const auto set = [&](const std::string& level, v1::SetLogLevelResponse* response) {
    v1::SetLogLevelRequest request;
    request.set_level(level);
    grpc::ClientContext context;
    return stubs.admin->SetLogLevel(&context, request, response).error_code();
  };
  v1::SetLogLevelResponse response;
  EXPECT_EQ(set("loud", &response), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(daemon.Log(), Not(HasSubstr("call finished")));
  EXPECT_EQ(set("debug", &response), StatusCode::OK);
  EXPECT_EQ(response.previous(), "info");
  EXPECT_TRUE(Eventually([&] { return daemon.Log().find("call finished") != std::string::npos; }));
  EXPECT_EQ(set("warning", &response), StatusCode::OK);
  EXPECT_EQ(response.previous(), "debug");
  EXPECT_EQ(set("info", &response), StatusCode::OK);

  v1::DrainResponse drain;
  grpc::ClientContext context;
  ASSERT_TRUE(stubs.admin->Drain(&context, {}, &drain).ok());
  EXPECT_EQ(drain.drain_seconds(), 25);
  EXPECT_EQ(daemon.Wait(absl::Seconds(30)), 0);
}

}  // namespace
}  // namespace tetrad::e2e
