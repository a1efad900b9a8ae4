// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: any sequence of what a client, the network and the device can do to one
// ExecuteStream. The stream, its tasks and the engine are the real ones; the RPC library is a
// transport that does what the bytes say (a reader that stalls is one whose write does not end),
// the engine is stepped, and between two events all threads have come to rest.
//
// What must hold: each request is answered once, under its id, and the id is free once its answer
// is on its way; a read is asked for as long as there is a slot, and only then; the stream ends
// when it should, once, and leaves nothing behind.
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/time/clock.h"

#include "engine/cpu_device.h"
#include "engine/faulty_device.h"
#include "engine/sample_request.h"
#include "engine/steady_clock.h"
#include "engine/support/status_macros.h"
#include "server/execute_stream.h"

namespace tetrad {
namespace {

using Request = v1::ExecuteStreamRequest;
using Response = v1::ExecuteStreamResponse;
using Reactor = grpc::ServerBidiReactor<Request, Response>;

constexpr size_t kSlots = 3;
constexpr size_t kMaxEvents = 256;

// The RPC library's side of one call. Its operations end when the test says so.
class Transport final : public grpc::ServerCallbackReaderWriter<Request, Response> {
 public:
  void Bind(Reactor* reactor) {
    reactor_ = reactor;
    BindReactor(reactor);
  }

  void Finish(grpc::Status status) override {
    const std::lock_guard lock(mutex_);
    TETRAD_CHECK(!finished_.has_value() && write_ == nullptr);
    finished_ = std::move(status);
  }
  void SendInitialMetadata() override {}
  void Read(Request* message) override {
    const std::lock_guard lock(mutex_);
    TETRAD_CHECK(!finished_.has_value() && read_ == nullptr);
    read_ = message;
  }
  void Write(const Response* message, grpc::WriteOptions) override {
    const std::lock_guard lock(mutex_);
    TETRAD_CHECK(!finished_.has_value() && write_ == nullptr && message != nullptr);
    write_ = message;
    ++writes_;
  }
  void WriteAndFinish(const Response*, grpc::WriteOptions, grpc::Status) override {
    TETRAD_CHECK(false);
  }

  bool reading() const {
    const std::lock_guard lock(mutex_);
    return read_ != nullptr;
  }
  bool writing() const {
    const std::lock_guard lock(mutex_);
    return write_ != nullptr;
  }
  int64_t writes() const {
    const std::lock_guard lock(mutex_);
    return writes_;
  }
  // The message is valid until EndWrite().
  const Response& written() const {
    const std::lock_guard lock(mutex_);
    return *write_;
  }
  std::optional<grpc::Status> finished() const {
    const std::lock_guard lock(mutex_);
    return finished_;
  }

  void EndRead(const Request* message) {
    Request* to = nullptr;
    {
      const std::lock_guard lock(mutex_);
      to = std::exchange(read_, nullptr);
    }
    if (message != nullptr) *to = *message;
    reactor_->OnReadDone(message != nullptr);
  }
  void EndWrite(bool ok) {
    {
      const std::lock_guard lock(mutex_);
      write_ = nullptr;
    }
    reactor_->OnWriteDone(ok);
  }
  void Cancel() { reactor_->OnCancel(); }
  void Done() { reactor_->OnDone(); }

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}

  Reactor* reactor_ = nullptr;
  mutable std::mutex mutex_;
  Request* read_ = nullptr;               // guarded by mutex_
  const Response* write_ = nullptr;       // guarded by mutex_
  int64_t writes_ = 0;                    // guarded by mutex_
  std::optional<grpc::Status> finished_;  // guarded by mutex_
};

// Requests of one shape: prepared, or by signature.
struct Shape {
  Shape(Engine& engine, const std::string& name, int32_t rows)
      : sample({{rows, 64, 32}},
               {.types = {.a_type = ActivationType::kBf16, .c_type = OutputType::kFp32}}) {
    TETRAD_CHECK(sample.Register(engine.weights(), name).ok());
    const auto prepared = engine.Prepare("anonymous@unix", sample.Signature(name));
    TETRAD_CHECK(prepared.ok());
    output_bytes = prepared->plan->wire.c_bytes;
    v1::Signature signature;
    signature.set_weights(name);
    signature.set_activation_type(v1::ACTIVATION_TYPE_BF16);
    signature.set_output_type(v1::OUTPUT_TYPE_FP32);
    signature.mutable_exact()->add_m(rows);
    by_plan.set_plan(prepared->handle);
    *by_signature.mutable_signature() = signature;
    for (v1::ExecuteRequest* request : {&by_plan, &by_signature}) {
      request->mutable_inline_operands()->set_activations(std::string(sample.Inline().activations));
    }
  }
  SampleRequest sample;
  int64_t output_bytes = 0;
  v1::ExecuteRequest by_plan, by_signature;
};

// All that streams share, and what is there once for all inputs.
struct World {
  World() { device->HoldCompletions(); }

  // Waits until no thread of ours has anything to do. Replies come from work, not the other way.
  void Rest() {
    for (WorkerPool* pool : {&work, &replies}) {
      std::mutex mutex;
      std::condition_variable changed;
      bool done = false;
      TETRAD_CHECK(pool->Post([&] {
        const std::lock_guard lock(mutex);
        done = true;
        changed.notify_one();
      }));
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return done; });
    }
  }
  // Until everything has been executed.
  void Complete() {
    engine->Step();
    device->ReleaseCompletions();
    while (!engine->idle()) engine->Step();
    device->HoldCompletions();
    Rest();
  }

  Config config = [] {
    Config config;
    config.stream_in_flight = kSlots;
    return config;
  }();
  FaultyDevice* device = nullptr;
  std::unique_ptr<Engine> engine = *Engine::CreateStepped(
      [this](std::function<void()> wake) -> absl::StatusOr<std::unique_ptr<Device>> {
        auto made = FaultyDevice::Create(
            [](std::function<void()> wake) {
              return CpuDevice::Create(
                  {.threads = 1, .memory_bytes = 64 << 20, .measure_rates = false},
                  std::move(wake));
            },
            std::move(wake));
        device = made->get();
        return made;
      },
      {.launch_timeout = absl::Hours(100'000), .leases = {.handle_idle = absl::Hours(100'000)}},
      {.clock = &SteadyNow, .wake_step = [] {}, .wake_housekeep = [] {}});
  Shape small{*engine, "small", 3};
  Shape large{*engine, "large", 300};  // its answer is not copied where the library is
  Metrics metrics;
  Log log{LogFormat::kLogfmt, LogLevel::kError};
  const std::optional<Root> checkpoint_root;
  ByteBudget call_bytes{400'000};  // of two large ones
  WorkerPool work{"work", 1, 64}, replies{"replies", 1, 64}, loads{"loads", 1, 1};
  const LoadTeam load_team;
};

World& Shared() {
  static World& world = *new World();  // its threads end with the process
  return world;
}

// One stream, and what is known of it.
class Stream {
 public:
  explicit Stream(World& world) : world_(world) {
    transport_.Bind(static_cast<Reactor*>(StartExecuteStream(service_, context_)));
    Look();
  }

  // Sends a message; it is read when the daemon reads.
  void Send(Request message) {
    if (!half_closing_) sent_.push_back(std::move(message));
    Pump();
  }
  void HalfClose() {
    half_closing_ = true;
    Pump();
  }
  // The client reads an answer.
  void TakeAnswer() {
    if (!transport_.writing() || cancelled_) return;
    --used_;
    transport_.EndWrite(true);
    Look();
    Pump();
  }
  // The call is cancelled, by the client or with its connection; a write under way fails before or
  // after the stream hears of that.
  void Cancel(bool write_first) {
    if (cancelled_ || transport_.finished().has_value()) return;
    cancelled_ = true;
    sent_.clear();
    if (write_first && transport_.writing()) transport_.EndWrite(false);
    transport_.Cancel();
    world_.Rest();
    if (transport_.writing()) transport_.EndWrite(false);
    if (transport_.reading()) transport_.EndRead(nullptr);
    Look();
    // However much the device still has, nobody waits for it.
    TETRAD_CHECK(transport_.finished().has_value());
  }
  void CloseGate() {
    closed_ = true;
    gate_.Close();
    streams_.Enter(DrainStage::kClosed);
    Look();
  }
  void Announce() {
    if (!closed_) streams_.Enter(DrainStage::kAnnounced);
    Look();
  }
  void Step() {
    world_.engine->Step();
    Look();
  }
  void Complete() {
    world_.Complete();
    Look();
  }

  // A client that reads to the end gets there.
  void End() {
    if (!cancelled_) HalfClose();
    Complete();
    while (!transport_.finished().has_value()) {
      TETRAD_CHECK(transport_.writing());
      TakeAnswer();
      Complete();
    }
    if (transport_.reading()) transport_.EndRead(nullptr);
    const grpc::StatusCode code = transport_.finished()->error_code();
    if (cancelled_) {
      TETRAD_CHECK(code == grpc::StatusCode::CANCELLED);
    } else {
      TETRAD_CHECK(code == grpc::StatusCode::OK ||
                   (closed_ && code == grpc::StatusCode::UNAVAILABLE));
      TETRAD_CHECK(named_.empty() && (closed_ || used_ == 0));
      for (const auto& [id, waiting] : waiting_) TETRAD_CHECK(waiting.empty());
      TETRAD_CHECK(duplicates_.empty());
    }
    transport_.Done();
    world_.Complete();
    world_.engine->Housekeep();
    TETRAD_CHECK(streams_.open(StreamKind::kExecute) == 0 && gate_.inside() == 0);
    TETRAD_CHECK(world_.call_bytes.used_bytes() == 0);
  }

 private:
  // What an answer is waited for.
  struct Waiting {
    bool admitted = false;
    int64_t output_bytes = -1;  // -1: it is wrong and must fail
  };

  void Pump() {
    while (transport_.reading() && !transport_.finished().has_value()) {
      if (!sent_.empty()) {
        const Request message = std::move(sent_.front());
        sent_.pop_front();
        Deliver(message);
      } else if (half_closing_) {
        half_closed_ = true;
        transport_.EndRead(nullptr);
        Look();
      } else {
        return;
      }
    }
  }

  void Deliver(const Request& message) {
    const double timeout = message.timeout_seconds();
    if (message.has_cancel()) {
      transport_.EndRead(&message);
      return Look();
    }
    if (closed_) {
      // Refused, or not even that where the end of the stream is the answer.
      dropped_ids_.insert(message.id());
      transport_.EndRead(&message);
      return Look();
    }
    ++used_;
    TETRAD_CHECK(used_ <= static_cast<int64_t>(kSlots));
    if (named_.contains(message.id())) {
      duplicates_.insert(message.id());
    } else {
      Waiting waiting;
      waiting.admitted = message.has_execute() && timeout >= 0 && timeout < 1e300;
      if (waiting.admitted) named_.insert(message.id());
      if (waiting.admitted && message.execute().inline_operands().activations().size() > 1) {
        const bool large = message.execute().inline_operands().activations().size() > 10'000;
        waiting.output_bytes = large ? world_.large.output_bytes : world_.small.output_bytes;
      }
      waiting_[message.id()].push_back(waiting);
    }
    transport_.EndRead(&message);
    Look();
  }

  // At rest: takes note of the answer that is being written, and checks what must hold.
  void Look() {
    world_.Rest();
    if (transport_.writes() != seen_writes_) {
      TETRAD_CHECK(transport_.writes() == seen_writes_ + 1);
      seen_writes_ = transport_.writes();
      if (transport_.writing()) See(transport_.written());
    }
    if (cancelled_ || transport_.finished().has_value()) return;
    if (closed_) return;
    const bool room = used_ < static_cast<int64_t>(kSlots);
    TETRAD_CHECK(transport_.reading() == (room && !half_closed_));
    // Without anything to execute whoever waits has an answer coming.
    if (used_ > 0 && world_.engine->idle()) TETRAD_CHECK(transport_.writing());
    TETRAD_CHECK(!(half_closed_ && used_ == 0));
  }

  void See(const Response& answer) {
    TETRAD_CHECK((answer.code() == 0) == answer.has_response());
    TETRAD_CHECK((answer.code() == 0) == answer.message().empty());
    if (answer.duplicate_id()) {
      TETRAD_CHECK(answer.code() == static_cast<int>(absl::StatusCode::kInvalidArgument));
      if (const auto found = duplicates_.find(answer.id()); found != duplicates_.end()) {
        duplicates_.erase(found);
      } else {
        TETRAD_CHECK(dropped_ids_.contains(answer.id()));
      }
      return;
    }
    std::deque<Waiting>& waiting = waiting_[answer.id()];
    if (waiting.empty()) {
      TETRAD_CHECK(dropped_ids_.contains(answer.id()));
      TETRAD_CHECK(answer.code() == static_cast<int>(absl::StatusCode::kUnavailable));
      return;
    }
    // Those that were refused were answered at once, so before any later one of the id.
    const Waiting of = waiting.front();
    waiting.pop_front();
    if (of.admitted) named_.erase(answer.id());
    if (answer.code() == 0) {
      TETRAD_CHECK(static_cast<int64_t>(answer.response().output().size()) == of.output_bytes);
    }
  }

  World& world_;
  CallGate gate_;
  ClientCalls client_calls_{1};
  OpenStreams streams_;
  Access access_{""};
  Refusals refusals_{world_.log, world_.metrics};
  grpc::CallbackServerContext context_;
  const ServiceContext service_{world_.config,
                                *world_.engine,
                                world_.metrics,
                                gate_,
                                client_calls_,
                                streams_,
                                world_.log,
                                access_,
                                refusals_,
                                world_.checkpoint_root,
                                world_.call_bytes,
                                world_.work,
                                world_.replies,
                                world_.loads,
                                world_.load_team,
                                absl::UnixEpoch(),
                                Identities({{.kind = ListenAddress::Kind::kUnix}})};
  Transport transport_;
  std::deque<Request> sent_;  // and not read
  bool half_closing_ = false, half_closed_ = false, cancelled_ = false, closed_ = false;
  int64_t used_ = 0;  // slots, until the gate closes
  int64_t seen_writes_ = 0;
  std::set<uint64_t> named_;  // ids under way
  std::map<uint64_t, std::deque<Waiting>> waiting_;
  std::multiset<uint64_t> duplicates_;
  std::multiset<uint64_t> dropped_ids_;  // came when the gate was closed
};

Request Message(const World& world, uint8_t kind, uint8_t detail) {
  static constexpr double kTimeouts[] = {0,
                                         0,
                                         0,
                                         1e-9,
                                         1e6,
                                         -1,
                                         std::numeric_limits<double>::infinity(),
                                         std::numeric_limits<double>::quiet_NaN()};
  Request message;
  message.set_id(detail & 3);
  message.set_timeout_seconds(kTimeouts[detail >> 5]);
  v1::ExecuteRequest& execute = *message.mutable_execute();
  switch (kind) {
    case 0:
      execute = world.small.by_plan;
      break;
    case 1:
      execute = world.small.by_signature;
      break;
    case 2:
      execute = world.large.by_plan;
      break;
    case 3:  // refused by the engine
      execute = world.small.by_plan;
      execute.mutable_inline_operands()->set_activations("x");
      break;
    case 4:  // by the codec
      break;
    case 5:
      message.clear_execute();
      break;
    default:
      message.mutable_cancel();
  }
  if ((detail & 4) != 0 && message.has_execute())
    message.mutable_execute()->set_priority(v1::PRIORITY_HIGH);
  return message;
}

void Run(const uint8_t* data, size_t size) {
  World& world = Shared();
  world.device->FailLaunches(0);
  Stream stream(world);
  for (size_t i = 0; i + 1 < std::min(size, 2 * kMaxEvents); i += 2) {
    const uint8_t event = data[i] % 16;
    const uint8_t detail = data[i + 1];
    switch (event) {
      case 8:
        stream.TakeAnswer();
        break;
      case 9:
        stream.Step();
        break;
      case 10:
        stream.Complete();
        break;
      case 11:
        world.device->FailLaunches(1);
        break;
      case 12:
        if (detail < 64) stream.HalfClose();
        break;
      case 13:
        if (detail < 64) stream.Cancel(detail % 2 == 0);
        break;
      case 14:
        detail < 64 ? stream.CloseGate() : stream.Announce();
        break;
      case 15:
        stream.TakeAnswer();
        stream.Complete();
        break;
      default:
        stream.Send(Message(world, event, detail));
    }
  }
  stream.End();
}

}  // namespace
}  // namespace tetrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tetrad::Run(data, size);
  return 0;
}
