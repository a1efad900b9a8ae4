// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// tetradd: configuration, start, signals, drain. Exit codes are those of
// sysexits.h and are listed in docs/configuration.md.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <google/protobuf/stubs/logging.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>

#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

#include "engine/support/status_macros.h"
#include "engine/support/unique_fd.h"
#include "server/config.h"
#include "server/crash_report.h"
#include "server/device_choice.h"
#include "server/listeners.h"
#include "server/log.h"
#include "server/server.h"
#include "server/status.h"
#include "server/version.h"

namespace tetrad {
namespace {

// What is left to do once calls were cancelled takes no longer than this.
constexpr absl::Duration kShutdownGrace = absl::Milliseconds(500);
constexpr std::chrono::seconds kTeardownLimit{2};
// With a lost device only answers that are on their way are waited for.
constexpr absl::Duration kLostDeviceGrace = absl::Seconds(1);

// SIGTERM, SIGINT and SIGHUP as a file descriptor. Made before any thread starts, which
// then inherits that they are blocked.
class Signals {
 public:
  Signals() {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGTERM);
    ::sigaddset(&set, SIGINT);
    ::sigaddset(&set, SIGHUP);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    fd_ = UniqueFd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    TETRAD_CHECK(fd_);
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);  // a limit of file size is an error like others
  }
  int fd() const { return fd_.get(); }
  // The signal that came, 0 if none.
  int Take() const {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo)
                                                                  : 0;
  }

 private:
  UniqueFd fd_;
};

// That the device is lost, as a file descriptor. Report() is for any thread.
class DeviceLoss {
 public:
  DeviceLoss() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { TETRAD_CHECK(fd_); }
  int fd() const { return fd_.get(); }
  void Report(const absl::Status& status) {
    {
      std::lock_guard lock(mutex_);
      status_ = status;
    }
    ::eventfd_write(fd_.get(), 1);
  }
  absl::Status status() const {  // OK: not lost
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  const UniqueFd fd_;
  mutable std::mutex mutex_;
  absl::Status status_;  // guarded by mutex_
};

// That a client asked for the drain, as a file descriptor.
class DrainRequest {
 public:
  DrainRequest() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { TETRAD_CHECK(fd_); }
  int fd() const { return fd_.get(); }
  void Make() const { ::eventfd_write(fd_.get(), 1); }  // for any thread

 private:
  const UniqueFd fd_;
};

// When files are to be looked at again.
class Reloads {
 public:
  Reloads(Server& server, absl::Duration interval) : server_(server), interval_(interval) {}
  // For poll(): until then, at most until `until`.
  int TimeoutMs(absl::Time until = absl::InfiniteFuture()) const {
    const absl::Duration left = std::min(next_, until) - absl::Now();
    return static_cast<int>(absl::ToInt64Milliseconds(
        absl::Ceil(std::max(left, absl::ZeroDuration()), absl::Milliseconds(1))));
  }
  void Step(bool now = false) {
    if (!now && absl::Now() < next_) return;
    server_.Reload();
    next_ = absl::Now() + interval_;
  }

 private:
  Server& server_;
  const absl::Duration interval_;
  absl::Time next_ = absl::Now() + interval_;
};

enum class Stop { kSignal, kRequest, kLoss };
Stop WaitWhileServing(const Signals& signals, const DrainRequest& request, const DeviceLoss& loss,
                      Reloads& reloads, Log& log) {
  for (;;) {
    pollfd entries[] = {{.fd = signals.fd(), .events = POLLIN, .revents = 0},
                        {.fd = loss.fd(), .events = POLLIN, .revents = 0},
                        {.fd = request.fd(), .events = POLLIN, .revents = 0}};
    ::poll(entries, 3, reloads.TimeoutMs());
    const int signal = signals.Take();
    reloads.Step(signal == SIGHUP);
    if (signal != 0 && signal != SIGHUP) {
      log.Info("signal", {{"signal", signal}});
      return Stop::kSignal;
    }
    if (entries[1].revents != 0) return Stop::kLoss;
    if (entries[2].revents != 0) return Stop::kRequest;
  }
}

// Waits until `idle_fd` (-1: never) is readable, the device is lost, or the time
// has come. A signal during a drain means that nobody wants to wait for it.
void WaitWhileDraining(const Signals& signals, const DeviceLoss& loss, Reloads& reloads,
                       int idle_fd, absl::Time until, Log& log) {
  for (;;) {
    const bool over = absl::Now() >= until;
    pollfd entries[] = {{.fd = signals.fd(), .events = POLLIN, .revents = 0},
                        {.fd = loss.fd(), .events = POLLIN, .revents = 0},
                        {.fd = idle_fd, .events = POLLIN, .revents = 0}};
    ::poll(entries, 3, reloads.TimeoutMs(until));
    const int signal = signals.Take();
    reloads.Step(signal == SIGHUP);
    if (signal != 0 && signal != SIGHUP) {
      log.Warning("second signal, exiting at once", {{"signal", signal}});
      ::_exit(128 + signal);
    }
    if (over || entries[1].revents != 0 || entries[2].revents != 0) return;
  }
}

// Ends the process if taking it down hangs, e.g. on a device that never answers.
class TeardownWatchdog {
 public:
  explicit TeardownWatchdog(Log& log)
      : thread_([this, &log](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          wake_.wait_for(lock, stop, kTeardownLimit, [] { return false; });
          if (stop.stop_requested()) return;
          log.Error("the shutdown hangs, exiting without it");
          ::_exit(EX_SOFTWARE);
        }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

void Drain(Server& server, const Config& config, const Signals& signals, const DeviceLoss& loss,
           Reloads& reloads, Log& log) {
  log.Info("draining", {{"lame_duck_seconds", config.lame_duck_seconds},
                        {"drain_seconds", config.drain_seconds}});
  server.BeginDrain();
  WaitWhileDraining(signals, loss, reloads, -1,
                    absl::Now() + absl::Seconds(config.lame_duck_seconds), log);
  server.CloseGate();
  WaitWhileDraining(signals, loss, reloads, server.idle_fd(),
                    absl::Now() + absl::Seconds(config.drain_seconds), log);
  log.Info("drained", {{"calls_cut_off", server.calls_inside()}});
}

// What was running has ended by now; this gives its answers a moment to leave,
// whatever signals come. The engine is not taken down: its device may never
// answer.
[[noreturn]] void LeaveLostDevice(Server& server, const DeviceLoss& loss, Log& log) {
  log.Error("device lost", {{"error", ErrorText(std::string(loss.status().message()))}});
  server.BeginDrain();
  server.CloseGate();
  pollfd idle{.fd = server.idle_fd(), .events = POLLIN, .revents = 0};
  ::poll(&idle, 1, static_cast<int>(absl::ToInt64Milliseconds(kLostDeviceGrace)));
  const TeardownWatchdog watchdog(log);
  server.Shutdown(kShutdownGrace);
  ::_exit(EX_SOFTWARE);
}

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return EX_USAGE;
    case absl::StatusCode::kInternal:
      return EX_SOFTWARE;
    default:
      return EX_UNAVAILABLE;
  }
}

int Fail(const absl::Status& status, Log& log) {
  log.Error("cannot start", {{"code", absl::StatusCodeToString(status.code())},
                             {"error", ErrorText(std::string(status.message()))}});
  return ExitCode(status);
}

EngineOptions ToEngineOptions(const Config& config) {
  EngineOptions options;
  options.plan_capacity = config.plan_capacity;
  options.plan_host_bytes = config.plan_host_bytes;
  options.max_inline_bytes = config.max_inline_bytes;
  options.staging_bytes = config.staging_bytes;
  options.queue_depth = config.queue_depth;
  options.pool_chunk_bytes = config.pool_chunk_bytes;
  options.allocation_log = config.allocation_log;
  options.launch_timeout = absl::Seconds(config.launch_timeout_seconds);
  options.leases.grace = absl::Seconds(config.lease_grace_seconds);
  options.leases.handle_idle = absl::Seconds(config.handle_idle_seconds);
  options.leases.max_leases = config.max_leases;
  options.leases.client_block_bytes = config.client_block_bytes;
  return options;
}

// As many descriptors as the system allows: every connection takes one, and a
// listener of the RPC library that once ran out of them stays deaf.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Abseil as distributions build it checks the order in which its locks are
// taken: each lock of the RPC library, and there are dozens in a request, goes
// through a graph that one spin lock of the process guards.
void StopLockOrderChecks() { absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore); }

// It writes a line of its own for each text of a request that is not UTF-8: clients, who are told
// anyway, could fill the log.
void SilenceMessageLibrary() { google::protobuf::SetLogHandler(nullptr); }

int Serve(const Config& config) {
  StopLockOrderChecks();
  SilenceMessageLibrary();
  const Signals signals;
  const DrainRequest request;
  RaiseDescriptorLimit();
  Log log(config.log_format == "json" ? LogFormat::kJson : LogFormat::kLogfmt,
          ParseLogLevel(config.log_level).value_or(LogLevel::kInfo));
  const Version version = BuildVersion();
  log.Info("starting",
           {{"version", version.version}, {"commit", version.commit}, {"pid", ::getpid()}});
  if (const absl::Status status = InstallCrashReport(config.crash_report, version); !status.ok()) {
    return Fail(status, log);
  }
  absl::StatusOr<Listeners> listeners = Listeners::Claim(config);
  if (!listeners.ok()) return Fail(listeners.status(), log);
  absl::StatusOr<DeviceChoice> choice = ChooseDevice(config);
  if (!choice.ok()) return Fail(choice.status(), log);
  DeviceLoss loss;
  EngineOptions options = ToEngineOptions(config);
  options.spin = choice->spin;
  options.on_device_lost = [&loss](const absl::Status& status) { loss.Report(status); };
  auto engine = Engine::Create(std::move(choice->factory), options);
  if (!engine.ok()) return Fail(engine.status(), log);
  const DeviceLimits& device = (*engine)->device_limits();
  log.Info("device", {{"choice", choice->reason},
                      {"name", device.name},
                      {"uuid", device.uuid},
                      {"capability", device.capability},
                      {"kernel", device.kernels.empty() ? "" : device.kernels.front().name},
                      {"units", device.ctas},
                      {"memory_bytes", device.memory_bytes},
                      {"spin_microseconds", absl::ToInt64Microseconds(options.spin)}});
  auto server =
      Server::Start(config, *std::move(listeners), **engine, log, [&request] { request.Make(); });
  if (!server.ok()) return Fail(server.status(), log);
  log.Info("ready", {{"grpc", absl::StrJoin((*server)->grpc_addresses(), ",")},
                     {"http", (*server)->http_address()},
                     {"health", (*server)->health_address()}});

  Reloads reloads(**server, absl::Seconds(config.reload_seconds));
  const Stop stop = WaitWhileServing(signals, request, loss, reloads, log);
  if (stop == Stop::kLoss) LeaveLostDevice(**server, loss, log);
  Drain(**server, config, signals, loss, reloads, log);
  if (!loss.status().ok()) LeaveLostDevice(**server, loss, log);

  const TeardownWatchdog watchdog(log);
  (*server)->Shutdown(kShutdownGrace);
  server->reset();
  engine->reset();
  log.Info("stopped");
  return EX_OK;
}

int Main(const std::vector<std::string>& arguments) {
  const auto loaded =
      LoadConfig(arguments, [](const std::string& name) -> std::optional<std::string> {
        const char* const value = std::getenv(name.c_str());
        if (value == nullptr) return std::nullopt;
        return value;
      });
  if (!loaded.ok()) {
    std::fprintf(stderr, "tetradd: %s\n",
                 ErrorText(std::string(loaded.status().message())).c_str());
    return EX_USAGE;
  }
  switch (loaded->action) {
    case ConfigAction::kPrintHelp:
      std::fputs(loaded->help.c_str(), stdout);
      return EX_OK;
    case ConfigAction::kPrintConfig:
      std::fputs(PrintConfig(*loaded).c_str(), stdout);
      return EX_OK;
    case ConfigAction::kPrintVersion: {
      const Version version = BuildVersion();
      std::printf("tetradd %s (%s, %s)\n", std::string(version.version).c_str(),
                  std::string(version.commit).c_str(), std::string(version.compiler).c_str());
      return EX_OK;
    }
    case ConfigAction::kServe:
      break;
  }
  return Serve(loaded->config);
}

}  // namespace
}  // namespace tetrad

int main(int argc, char** argv) {
  return tetrad::Main(std::vector<std::string>(argv + 1, argv + argc));
}
