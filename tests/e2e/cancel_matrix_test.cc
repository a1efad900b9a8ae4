// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Cancellation and time limits, at each stage of each kind of call: the outcome
// has the right code, all that the call held comes back, and the next good
// request works. Every case runs twice: what caches keep after the first time
// must be all that is there after the second.
//
//   late       the time limit has passed when the engine is asked
//   unplanned  the daemon has the request, its plan is not built yet
//   queued     others are before it
//   running    the device has it
//   writing    the reply is on its way to a client that does not read
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "clients/cpp/execute_stream.h"
#include "tests/e2e/memory_client.h"
#include "tests/e2e/stopped_threads.h"
#include "tests/e2e/unread_call.h"

namespace tetrad::e2e {
namespace {

using absl::StatusCode;

constexpr absl::Duration kShort = absl::Milliseconds(150);
constexpr char kFixtures[] = "tests/checkpoints/fixtures";

enum class How { kCancel, kDeadline };
constexpr How kBoth[] = {How::kCancel, How::kDeadline};
const char* NameOf(How how) { return how == How::kCancel ? "cancel" : "deadline"; }
StatusCode CodeOf(How how) {
  return how == How::kCancel ? StatusCode::kCancelled : StatusCode::kDeadlineExceeded;
}

// A blocking call in a thread, ended by its deadline or by Cancel().
class Caller {
 public:
  Caller(How how, std::function<absl::Status(const CallOptions&)> call)
      : thread_([this, how, call = std::move(call)] {
          CallOptions options;
          options.cancel = stop_.get_token();
          options.deadline = how == How::kDeadline ? kShort : absl::Minutes(5);
          status_ = call(options);
        }) {}
  void Cancel() { stop_.request_stop(); }
  absl::Status Join() {
    thread_.join();
    return status_;
  }

 private:
  std::stop_source stop_;
  absl::Status status_;
  std::jthread thread_;
};

class CancelMatrixTest : public ::testing::Test {
 protected:
  CancelMatrixTest() {
    Register(stubs, small, "small");
    Register(stubs, slow, "slow");
    Register(stubs, large, "large");
    client = ConnectClient(daemon.socket());
    attachment = AttachTo(*client);
    block = client->Allocate(attachment->lease(), kBlockBytes)->block();
    small_request = RequestOf(small, "small");
    slow_request = RequestOf(slow, "slow");
    large_request = RequestOf(large, "large");
    // Plans, staging and threads that stay.
    for (const auto* request : {&small_request, &slow_request, &large_request}) {
      EXPECT_TRUE(client->Execute(*request).ok());
    }
  }

  double InFlight(const std::string& method) const {
    return Metric(daemon,
                  absl::StrCat("tetrad_requests_in_flight{method=\"tetrad.v1.", method, "\"}"));
  }
  bool Eventually(const std::function<bool()>& condition) const {
    const bool held = e2e::Eventually(condition);
    EXPECT_TRUE(held);
    return held;
  }
  bool UnderWay(const std::string& method, double calls = 1) const {
    return Eventually([&] { return InFlight(method) >= calls; });
  }
  std::string All() const {
    const auto status = client->GetStatus();
    std::string all = absl::StrCat(Held(daemon, *client), " staging=", status->staging_bytes(),
                                   " weights=", status->weights(), "/", status->weights_bytes(),
                                   " tickets=", status->tickets(), "/", status->ticket_bytes(),
                                   " pool=", status->pool().block_bytes());
    for (const char* method : {"Gemm/Prepare", "Gemm/Execute", "Gemm/ExecuteStream", "Gemm/Submit",
                               "Gemm/Wait", "Gemm/Watch", "Weights/Upload", "Weights/Load",
                               "Memory/Write", "Memory/Read", "Memory/Attach"}) {
      absl::StrAppend(&all, " ", method, "=", InFlight(method));
    }
    return all;
  }

  // Runs the case twice; all it held comes back, and a good request works.
  void Twice(const std::string& name, const std::function<void()>& run) {
    SCOPED_TRACE(name);
    std::string first;
    for (int round = 0; round < 2; ++round) {
      run();
      if (round == 0) {
        // What the first one left for good, once all that ends has ended.
        ASSERT_TRUE(Eventually([&] {
          const auto status = client->GetStatus();
          const bool at_rest = status->in_flight() == 0 && status->tickets() == 0 &&
                               status->plan_handles() == 0 && status->weights() == 3 &&
                               Metric(daemon, "tetrad_call_bytes") == 0;
          const std::string now = All();
          return std::exchange(first, now) == now && at_rest;
        })) << All();
      }
    }
    EXPECT_TRUE(e2e::Eventually([&] { return All() == first; })) << All() << "\nnot " << first;
    ExecuteAndVerify(stubs, small, small_request);
  }

  // Requests that are long for the device, answered by the destructor.
  class Fillers {
   public:
    Fillers(CancelMatrixTest& test, int count)
        : test_(test), stream_(test.client->OpenExecuteStream()) {
      for (int i = 0; i < count; ++i) {
        EXPECT_TRUE(stream_->Submit(static_cast<uint64_t>(i), test.slow_request));
      }
      EXPECT_TRUE(test.Eventually(
          [&] { return Metric(test_.daemon, "tetrad_launches_in_flight") == count; }));
    }
    ~Fillers() {
      stream_->Close();
      while (const auto answer = stream_->Next()) EXPECT_EQ(answer->code(), 0) << answer->message();
      EXPECT_TRUE(stream_->Finish().ok());
    }

   private:
    CancelMatrixTest& test_;
    const std::unique_ptr<ExecuteStream> stream_;
  };

  // With `threads` stopped and `fillers` before it, ends one call of each kind that
  // executes `request`, as soon as `ready` returns; then the threads go on.
  void ExecutesWhile(const std::string& stage, const std::string& threads, int fillers,
                     const v1::ExecuteRequest& request, const std::function<void()>& ready);
  void ExecuteOnce(How how, const v1::ExecuteRequest& request, const std::function<void()>& ready);

  static constexpr int64_t kBlockBytes = 32 << 20;
  const Daemon daemon{{"--threads", "1", "--handle-idle-seconds", "1", "--lease-grace-seconds", "0",
                       "--checkpoint-root", kFixtures}};
  const Stubs stubs{daemon};
  const GroupShape small_shape{3, 24, 64}, slow_shape{512, 1024, 1024},
      large_shape{128, 49152, 32};  // a reply of 12 MiB
  Operands small{std::span(&small_shape, 1), {.seed = 1}};
  Operands slow{std::span(&slow_shape, 1), {.seed = 2}};
  Operands large{std::span(&large_shape, 1), {.kind = DataKind::kContest, .seed = 3}};
  std::unique_ptr<Client> client;
  std::unique_ptr<Attachment> attachment;
  std::string block;
  v1::ExecuteRequest small_request, slow_request, large_request;
};

void CancelMatrixTest::ExecuteOnce(How how, const v1::ExecuteRequest& request,
                                   const std::function<void()>& ready) {
  Caller caller(
      how, [&](const CallOptions& options) { return client->Execute(request, options).status(); });
  if (how == How::kCancel) {
    UnderWay("Gemm/Execute");
    ready();
    caller.Cancel();
  }
  EXPECT_EQ(caller.Join().code(), CodeOf(how));
}

void CancelMatrixTest::ExecutesWhile(const std::string& stage, const std::string& threads,
                                     int fillers, const v1::ExecuteRequest& request,
                                     const std::function<void()>& ready) {
  const auto stopped = [&](const std::function<void()>& run) {
    std::unique_ptr<Fillers> before;  // ends after the threads go on
    StoppedThreads standing(daemon.pid(), threads);
    before = std::make_unique<Fillers>(*this, fillers);
    run();
    standing.Resume();
  };
  for (const How how : kBoth) {
    Twice(absl::StrCat(stage, " Execute ", NameOf(how)),
          [&] { stopped([&] { ExecuteOnce(how, request, ready); }); });
  }
  // A cancel message, the end of the stream, a time limit.
  for (const int variant : {0, 1, 2}) {
    Twice(absl::StrCat(stage, " ExecuteStream ", variant), [&] {
      std::unique_ptr<ExecuteStream> stream;
      std::stop_source stop;
      std::optional<v1::ExecuteStreamResponse> answer;
      stopped([&] {
        stream = client->OpenExecuteStream({.deadline = {}, .cancel = stop.get_token()});
        ASSERT_TRUE(stream->Submit(1, request, variant == 2 ? kShort : absl::ZeroDuration()));
        UnderWay("Gemm/ExecuteStream", 2);  // one is of the fillers
        ready();
        if (variant == 0) {
          ASSERT_TRUE(stream->Cancel(1));
          // Messages are taken in order: with the answer to this one that was heard.
          ASSERT_TRUE(stream->Submit(2, v1::ExecuteRequest(), -absl::Seconds(1)));
          for (auto next = stream->Next(); next && next->id() != 2; next = stream->Next()) {
            answer = *next;
          }
        }
        if (variant == 1) stop.request_stop();
        if (variant == 2) absl::SleepFor(kShort);  // the limit passes
        stream->Close();
      });
      if (!answer.has_value()) answer = stream->Next();
      ASSERT_EQ(answer.has_value(), variant != 1);
      if (variant != 1) {
        EXPECT_EQ(answer->code(), static_cast<int>(CodeOf(kBoth[variant / 2])));
        EXPECT_FALSE(answer->has_response());
        EXPECT_FALSE(stream->Next().has_value());
      }
      EXPECT_EQ(stream->Finish().code(), variant == 1 ? StatusCode::kCancelled : StatusCode::kOk);
    });
  }
}

TEST_F(CancelMatrixTest, Late) {
  Twice("Execute", [&] {
    StoppedThreads workers(daemon.pid(), kWorkThreads);
    Caller caller(How::kDeadline, [&](const CallOptions& options) {
      return client->Execute(small_request, options).status();
    });
    EXPECT_EQ(caller.Join().code(), StatusCode::kDeadlineExceeded);
    workers.Resume();
  });
  Twice("ExecuteStream", [&] {
    const auto stream = client->OpenExecuteStream();
    ASSERT_TRUE(stream->Submit(1, small_request, absl::Nanoseconds(1)));
    const auto answer = stream->Next();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->code(), static_cast<int>(StatusCode::kDeadlineExceeded));
    stream->Close();
    EXPECT_FALSE(stream->Next().has_value());
    EXPECT_TRUE(stream->Finish().ok());
  });
  Twice("Submit", [&] {
    v1::SubmitRequest submit;
    *submit.mutable_execute() = small_request;
    submit.set_timeout_seconds(1e-9);
    EXPECT_EQ(client->Submit(submit).status().code(), StatusCode::kDeadlineExceeded);
  });
}

TEST_F(CancelMatrixTest, UnplannedExecutes) {
  ExecutesWhile("unplanned", kWorkThreads, 0, small_request, [] {});
}

TEST_F(CancelMatrixTest, QueuedExecutes) {
  ExecutesWhile("queued", kDeviceThread, 2, small_request, [this] {
    Eventually([&] { return Metric(daemon, "tetrad_launches_queued") == 1; });
  });
}

TEST_F(CancelMatrixTest, RunningExecutes) {
  ExecutesWhile("running", kDeviceThread, 0, small_request, [this] {
    Eventually([&] {
      return Metric(daemon, "tetrad_launches_in_flight") == 1 &&
             Metric(daemon, "tetrad_launches_queued") == 0;
    });
  });
}

TEST_F(CancelMatrixTest, Submit) {
  v1::SubmitRequest submit;
  *submit.mutable_execute() = small_request;
  // One whose call ends just as it is admitted leaves an outcome nobody can name.
  submit.set_keep_seconds(5);
  const auto settle = [&](const std::string& ticket, StatusCode code) {
    v1::WaitRequest wait;
    wait.set_ticket(ticket);
    wait.set_timeout_seconds(60);
    wait.set_forget(true);
    const auto outcome = client->Wait(wait);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->code(), static_cast<int>(code));
    EXPECT_FALSE(outcome->has_response());
  };
  for (const How how : kBoth) {
    Twice(absl::StrCat("unplanned ", NameOf(how)), [&] {
      StoppedThreads workers(daemon.pid(), kWorkThreads);
      Caller caller(how, [&](const CallOptions& options) {
        return client->Submit(submit, options).status();
      });
      if (how == How::kCancel) {
        UnderWay("Gemm/Submit");
        caller.Cancel();
      }
      EXPECT_EQ(caller.Join().code(), CodeOf(how));
      workers.Resume();
    });
    for (const int fillers : {0, 2}) {
      Twice(absl::StrCat(fillers == 0 ? "running " : "queued ", NameOf(how)), [&] {
        std::unique_ptr<Fillers> before;
        StoppedThreads device(daemon.pid(), kDeviceThread);
        before = std::make_unique<Fillers>(*this, fillers);
        v1::SubmitRequest request = submit;
        if (how == How::kDeadline) request.set_timeout_seconds(absl::ToDoubleSeconds(kShort));
        const auto submitted = client->Submit(request);
        ASSERT_TRUE(submitted.ok()) << submitted.status();
        if (how == How::kCancel) {
          EXPECT_TRUE(*client->Cancel(submitted->ticket()));
        } else {
          absl::SleepFor(kShort);  // the limit passes
        }
        device.Resume();
        settle(submitted->ticket(), CodeOf(how));
      });
    }
  }
  Twice("a wait and a watch that are given up", [&] {
    StoppedThreads device(daemon.pid(), kDeviceThread);
    const auto submitted = client->Submit(submit);
    ASSERT_TRUE(submitted.ok()) << submitted.status();
    for (const How how : kBoth) {
      Caller waiter(how, [&](const CallOptions& options) {
        v1::WaitRequest wait;
        wait.set_ticket(submitted->ticket());
        wait.set_timeout_seconds(600);
        return client->Wait(wait, options).status();
      });
      Caller watcher(how, [&](const CallOptions& options) {
        const std::string names[] = {submitted->ticket()};
        return client->Watch(
            names, [](const v1::TicketEvent&) { FAIL(); }, options);
      });
      if (how == How::kCancel) {
        UnderWay("Gemm/Wait");
        UnderWay("Gemm/Watch");
        waiter.Cancel();
        watcher.Cancel();
      }
      EXPECT_EQ(waiter.Join().code(), CodeOf(how));
      EXPECT_EQ(watcher.Join().code(), CodeOf(how));
    }
    EXPECT_TRUE(*client->Cancel(submitted->ticket()));
    device.Resume();
    settle(submitted->ticket(), StatusCode::kCancelled);
  });
}

TEST_F(CancelMatrixTest, WritingToAClientThatDoesNotRead) {
  const auto written = [&] {
    Eventually([&] { return Metric(daemon, "tetrad_call_bytes") >= 12 << 20; });
  };
  v1::ExecuteStreamRequest message;
  message.set_id(1);
  *message.mutable_execute() = large_request;
  v1::ReadRequest read;
  read.set_block(block);
  read.set_bytes(kBlockBytes);
  struct Case {
    const char* method;
    const google::protobuf::MessageLite& request;
  };
  for (const Case& row : {Case{"Gemm/Execute", large_request}, Case{"Gemm/ExecuteStream", message},
                          Case{"Memory/Read", read}}) {
    for (const How how : kBoth) {
      Twice(absl::StrCat(row.method, " ", NameOf(how)), [&] {
        UnreadCall call(daemon.socket(), absl::StrCat("/tetrad.v1.", row.method), row.request,
                        how == How::kDeadline ? absl::Seconds(2) : absl::InfiniteDuration());
        if (how == How::kCancel) {
          UnderWay(row.method);
          if (&row.request != &read) written();
          call.Cancel();
        }
        EXPECT_EQ(call.Finish().error_code(), how == How::kCancel
                                                  ? grpc::StatusCode::CANCELLED
                                                  : grpc::StatusCode::DEADLINE_EXCEEDED);
      });
    }
  }
}

TEST_F(CancelMatrixTest, OtherCallsWhileTheirWorkWaits) {
  const UploadMessages messages = UploadMessagesOf(slow, "upload", 1 << 20);
  struct Case {
    const char* method;
    const char* threads;
    std::function<absl::Status(const CallOptions&)> call;
  };
  v1::UploadHeader header = messages[0].header();
  // Half of what the upload needs: a whole one may succeed although nobody hears it.
  const std::vector<uint8_t> codes(256 << 10, 0x11);
  std::vector<uint8_t> out(1 << 20);
  v1::LoadRequest load;
  load.set_name("loaded");
  load.set_directory("quickstart_modelopt");
  load.set_pattern("model.layers.0.mlp.experts.{expert}.up_proj");
  const std::vector<Case> kCases = {
      {"Weights/Upload", kWorkThreads,
       [&](CallOptions o) {
         o.resume = false;  // else what arrived is kept for a while
         return client->Upload(header, codes, {}, {}, o).status();
       }},
      {"Weights/Load", kLoadThreads,
       [&](const CallOptions& o) { return client->Load(load, {}, o).status(); }},
      {"Memory/Write", kWorkThreads,
       [&](const CallOptions& o) { return client->Write(block, 0, codes, o); }},
      {"Memory/Read", kWorkThreads,
       [&](const CallOptions& o) { return client->Read(block, 0, out, o); }},
      {"Gemm/Prepare", kWorkThreads,
       [&](const CallOptions& o) {
         return client->Prepare(small_request.signature(), o).status();
       }},
  };
  for (const Case& row : kCases) {
    for (const How how : kBoth) {
      Twice(absl::StrCat(row.method, " ", NameOf(how)), [&] {
        StoppedThreads standing(daemon.pid(), row.threads);
        Caller caller(how, row.call);
        if (how == How::kCancel) {
          UnderWay(row.method);
          caller.Cancel();
        }
        EXPECT_EQ(caller.Join().code(), CodeOf(how));
        standing.Resume();
        Eventually([&] { return InFlight(row.method) == 0; });
        // A load that was through before it noticed has succeeded.
        client->Drop("loaded").status().IgnoreError();
      });
    }
  }
}

TEST_F(CancelMatrixTest, Attach) {
  for (const How how : kBoth) {
    Twice(NameOf(how), [&] {
      UnreadCall call(daemon.socket(), "/tetrad.v1.Memory/Attach", v1::AttachRequest(),
                      how == How::kDeadline ? kShort : absl::InfiniteDuration());
      if (how == How::kCancel) {
        UnderWay("Memory/Attach", 2);
        call.Cancel();
      }
      EXPECT_EQ(call.Finish().error_code(), how == How::kCancel
                                                ? grpc::StatusCode::CANCELLED
                                                : grpc::StatusCode::DEADLINE_EXCEEDED);
    });
  }
}

}  // namespace
}  // namespace tetrad::e2e
