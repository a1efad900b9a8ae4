// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/crash_report.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <string_view>

#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/stacktrace.h"
#include "absl/debugging/symbolize.h"
#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"
#include "engine/support/unique_fd.h"

namespace tetrad {
namespace {

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
constexpr int kHangSeconds = 3;
constexpr int kFrames = 64;

// A signal handler gets nothing but the signal, so what it needs cannot be a
// parameter. Written before the handlers are installed, and then read only.
struct Installed {
  char program[256] = {};
  char head[512] = {};
  timespec since = {};
  int file = -1;
  struct sigaction next[NSIG] = {};  // Abseil's handlers
};
Installed installed;
std::atomic<const char*> failed_check{nullptr};
std::atomic_flag reporting;

// Text in a buffer of its own, cut where it does not fit: memory may be what is
// broken.
class Text {
 public:
  Text& Add(std::string_view text) {
    const size_t size = std::min(text.size(), sizeof(bytes_) - size_);
    std::memcpy(bytes_ + size_, text.data(), size);
    size_ += size;
    return *this;
  }
  Text& AddNumber(uint64_t number, unsigned base) {
    char digits[20];
    size_t first = sizeof(digits);
    do {
      digits[--first] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
    return Add({digits + first, sizeof(digits) - first});
  }
  std::string_view view() const { return {bytes_, size_}; }

 private:
  char bytes_[1024];
  size_t size_ = 0;
};

void WriteTo(int fd, std::string_view text) {
  while (fd >= 0 && !text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void WriteToBoth(const Text& text) {
  WriteTo(STDERR_FILENO, text.view());
  WriteTo(installed.file, text.view());
}

// Abseil's writer; null asks to flush, and nothing is buffered.
void WriteToFile(const char* text) {
  if (text != nullptr) WriteTo(installed.file, text);
}

uintptr_t InterruptedAt(const void* context) {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<uintptr_t>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<uintptr_t>(machine.pc);
#else
  return 0;
#endif
}

// Frames from the interrupted one on. Abseil's own unwinder follows frame
// pointers, which neither our libraries nor the system's have; the compiler's
// follows the tables of exceptions, and finds those without taking a lock.
int Unwind(void** frames, int* sizes, int most, int skip, const void* context, int* dropped) {
  void* all[kFrames];
  const int count = ::backtrace(all, kFrames);
  void* const* const end = all + count;
  const uintptr_t interrupted = context == nullptr ? 0 : InterruptedAt(context);
  void* const* first = std::find_if(all, all + count, [interrupted](const void* frame) {
    return reinterpret_cast<uintptr_t>(frame) == interrupted;
  });
  if (first == end) first = all + std::min(skip, count);
  const int kept = std::min(static_cast<int>(end - first), most);
  std::copy_n(first, kept, frames);
  if (sizes != nullptr) std::fill_n(sizes, kept, 0);
  if (dropped != nullptr) *dropped = static_cast<int>(end - first) - kept;
  return kept;
}

void ReportHead() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t up_ms = (now.tv_sec - installed.since.tv_sec) * 1000 +
                        (now.tv_nsec - installed.since.tv_nsec) / 1'000'000;
  Text text;
  text.Add(installed.head).AddNumber(static_cast<uint64_t>(std::max<int64_t>(up_ms, 0)), 10);
  text.Add(" ms\n");
  if (const char* const check = failed_check.load(std::memory_order_relaxed)) text.Add(check);
  WriteToBoth(text);
}

void ReportModules(const void* context) {
  void* frames[kFrames];
  const int count = Unwind(frames, nullptr, kFrames, 0, context, nullptr);
  for (int i = 0; i < count; ++i) {
    Text text;
    text.Add("  #").AddNumber(static_cast<uint64_t>(i), 10).Add(" ");
    const auto address = reinterpret_cast<uintptr_t>(frames[i]);
    dl_find_object module{};
    if (::_dl_find_object(frames[i], &module) == 0) {
      const link_map& map = *module.dlfo_link_map;
      text.Add(*map.l_name == '\0' ? installed.program : map.l_name).Add("+0x");
      text.AddNumber(address - map.l_addr, 16);
    } else {
      text.Add("0x").AddNumber(address, 16);
    }
    WriteToBoth(text.Add("\n"));
  }
}

void Report(int signal, siginfo_t* info, void* context) {
  // Of two threads that die at once, one reports; Abseil lets the other wait.
  if (!reporting.test_and_set()) {
    ::alarm(kHangSeconds);
    ReportHead();
    ReportModules(context);
  }
  // Prints signal, time and names of the frames, and raises the signal again.
  installed.next[signal].sa_sigaction(signal, info, context);
}

absl::StatusOr<UniqueFd> OpenReport(const std::string& path) {
  // O_NONBLOCK: a FIFO that nobody reads would hold the start.
  UniqueFd file(::open(path.c_str(),
                       O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) {
    const std::string why =
        absl::StrCat("crash_report: ", path, " cannot be opened: ", std::strerror(errno));
    if (errno == ENOENT || errno == ENOTDIR) return absl::NotFoundError(why);
    if (errno == EACCES || errno == EPERM || errno == EROFS)
      return absl::PermissionDeniedError(why);
    return absl::FailedPreconditionError(why);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("crash_report: ", path, " is no file"));
  }
  return file;
}

void CopyTo(std::string_view text, std::span<char> out) {
  std::memcpy(out.data(), text.data(), std::min(text.size(), out.size() - 1));
}

}  // namespace

// The other end of the weak declaration in engine/support/status_macros.h.
void NoteFailedCheck(const char* text) { failed_check.store(text, std::memory_order_relaxed); }

absl::Status InstallCrashReport(const std::string& path, const Version& version) {
  if (!path.empty()) {
    TETRAD_ASSIGN_OR_RETURN(UniqueFd file, OpenReport(path));
    installed.file = file.Release();  // for as long as the process may die
  }
  char program[sizeof(installed.program)] = {};
  if (::readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) CopyTo("tetradd", program);
  CopyTo(program, installed.program);
  CopyTo(
      absl::StrCat("*** tetradd ", std::string(version.version), " (", std::string(version.commit),
                   ", ", std::string(version.compiler), "), process ", ::getpid(), ", up "),
      installed.head);
  ::clock_gettime(CLOCK_MONOTONIC, &installed.since);

  absl::InitializeSymbolizer(installed.program);
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // its first call allocates
  absl::SetStackUnwinder(Unwind);
  struct sigaction term {};
  struct sigaction trap {};
  ::sigaction(SIGTERM, nullptr, &term);
  ::sigaction(SIGTRAP, nullptr, &trap);
  absl::FailureSignalHandlerOptions options;
  options.alarm_on_failure_secs = kHangSeconds;
  options.writerfn = installed.file >= 0 ? WriteToFile : nullptr;
  absl::InstallFailureSignalHandler(options);
  // It takes these two as well: a stop is no crash, and traps are a debugger's.
  ::sigaction(SIGTERM, &term, nullptr);
  ::sigaction(SIGTRAP, &trap, nullptr);
  for (const int signal : kSignals) {
    struct sigaction action {};
    action.sa_sigaction = Report;
    // Not deferred, so that a hang can be ended by the same signal.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    ::sigaction(signal, nullptr, &installed.next[signal]);
    ::sigaction(signal, &action, nullptr);
  }
  return absl::OkStatus();
}

}  // namespace tetrad
