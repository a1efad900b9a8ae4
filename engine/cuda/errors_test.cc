// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/errors.h"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <latch>
#include <map>
#include <new>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {
// While set, this thread gets no host memory.
thread_local bool no_memory = false;
}  // namespace

// Replaces the allocator of the whole program.
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* const memory = no_memory ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tetrad::cuda {
namespace {

// Name by number, as the header of the toolkit in use declares them.
std::map<int, std::string> ErrorsOfHeader() {
  std::ifstream file(TETRAD_CUDA_HEADER);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t begin = text.find("typedef enum cudaError_enum");
  const size_t end = text.find("} CUresult;", begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  const std::string body = text.substr(begin, end - begin);
  const std::regex enumerator(R"((CUDA_[A-Z0-9_]+)\s*=\s*([0-9]+))");
  std::map<int, std::string> errors;
  for (std::sregex_iterator i(body.begin(), body.end(), enumerator); i != std::sregex_iterator();
       ++i) {
    EXPECT_TRUE(errors.emplace(std::stoi((*i)[2]), (*i)[1]).second) << (*i)[0];
  }
  return errors;
}

// What CUresult can hold by the language's rules.
constexpr int kNumbers = 1024;

bool Known(int number) {
  return std::string(Classify(static_cast<CUresult>(number)).name).starts_with("CUDA_");
}

// The members of a class, decided by hand from the header's comments.
const std::set<int>& Fatal() {
  static const std::set<int> kErrors = {
      CUDA_ERROR_NOT_INITIALIZED,
      CUDA_ERROR_DEINITIALIZED,
      CUDA_ERROR_ECC_UNCORRECTABLE,
      CUDA_ERROR_NVLINK_UNCORRECTABLE,
      226,  // CONTAINED
      CUDA_ERROR_ILLEGAL_ADDRESS,
      CUDA_ERROR_LAUNCH_TIMEOUT,
      CUDA_ERROR_CONTEXT_IS_DESTROYED,
      CUDA_ERROR_ASSERT,
      CUDA_ERROR_HARDWARE_STACK_ERROR,
      CUDA_ERROR_ILLEGAL_INSTRUCTION,
      CUDA_ERROR_MISALIGNED_ADDRESS,
      CUDA_ERROR_INVALID_ADDRESS_SPACE,
      CUDA_ERROR_INVALID_PC,
      CUDA_ERROR_LAUNCH_FAILED,
      721,  // TENSOR_MEMORY_LEAK
      CUDA_ERROR_MPS_RPC_FAILURE,
      CUDA_ERROR_MPS_CLIENT_TERMINATED,
      CUDA_ERROR_EXTERNAL_DEVICE,
      916,  // KEY_ROTATION
      CUDA_ERROR_UNKNOWN,
  };
  return kErrors;
}

const std::set<int>& Configuration() {
  static const std::set<int> kErrors = {
      CUDA_ERROR_PROFILER_DISABLED,
      CUDA_ERROR_STUB_LIBRARY,
      36,  // CALL_REQUIRES_NEWER_DRIVER
      CUDA_ERROR_DEVICE_UNAVAILABLE,
      CUDA_ERROR_NO_DEVICE,
      CUDA_ERROR_INVALID_DEVICE,
      CUDA_ERROR_DEVICE_NOT_LICENSED,
      CUDA_ERROR_INVALID_IMAGE,
      CUDA_ERROR_NO_BINARY_FOR_GPU,
      CUDA_ERROR_UNSUPPORTED_LIMIT,
      CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
      CUDA_ERROR_INVALID_PTX,
      CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
      CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
      CUDA_ERROR_JIT_COMPILATION_DISABLED,
      CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
      CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
      CUDA_ERROR_INVALID_SOURCE,
      CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
      CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
      CUDA_ERROR_NOT_PERMITTED,
      CUDA_ERROR_NOT_SUPPORTED,
      CUDA_ERROR_SYSTEM_NOT_READY,
      CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
      CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
      CUDA_ERROR_MPS_CONNECTION_FAILED,
      CUDA_ERROR_MPS_SERVER_NOT_READY,
      CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
      CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
      CUDA_ERROR_CDP_NOT_SUPPORTED,
      CUDA_ERROR_CDP_VERSION_MISMATCH,
  };
  return kErrors;
}

TEST(CudaErrorsTest, EveryErrorOfTheHeaderIsClassifiedUnderItsName) {
  const std::map<int, std::string> errors = ErrorsOfHeader();
  ASSERT_GE(errors.size(), 95u) << TETRAD_CUDA_HEADER;
  for (const auto& [number, name] : errors) {
    EXPECT_EQ(Classify(static_cast<CUresult>(number)).name, name) << number;
  }
}

TEST(CudaErrorsTest, NoNumberIsInventedAndNoNameIsTwice) {
  const std::map<int, std::string> errors = ErrorsOfHeader();
  std::set<std::string> names;
  for (int number = 0; number < kNumbers; ++number) {
    if (!Known(number)) continue;
    EXPECT_TRUE(names.insert(Classify(static_cast<CUresult>(number)).name).second) << number;
    // An older toolkit lacks some of the table, which is made from that of 13.0.
    EXPECT_TRUE(errors.contains(number) || CUDA_VERSION < 13000) << number;
  }
  EXPECT_GE(names.size(), errors.size());
}

TEST(CudaErrorsTest, ClassesHaveTheMembersDecidedByHand) {
  for (int number = 0; number < kNumbers; ++number) {
    if (!Known(number)) continue;
    const Severity expected = Fatal().contains(number)           ? Severity::kFatal
                              : Configuration().contains(number) ? Severity::kConfiguration
                                                                 : Severity::kRequest;
    EXPECT_EQ(Classify(static_cast<CUresult>(number)).severity, expected) << number;
  }
}

TEST(CudaErrorsTest, TheHeaderCallsFatalWhatEndsTheProcess) {
  // Each comment of the header that says so precedes its enumerator.
  std::ifstream file(TETRAD_CUDA_HEADER);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string body = text.substr(0, text.find("} CUresult;"));
  int found = 0;
  for (size_t at = text.find("typedef enum cudaError_enum");
       (at = body.find("terminated", at)) != std::string::npos; ++at) {
    const size_t name = body.find("CUDA_ERROR_", body.find("*/", at));
    const size_t number = body.find('=', name) + 1;
    EXPECT_EQ(Classify(static_cast<CUresult>(std::stoi(body.substr(number, 20)))).severity,
              Severity::kFatal)
        << body.substr(name, 40);
    ++found;
  }
  EXPECT_GE(found, 10);
}

TEST(CudaErrorsTest, CodesFollowTheClass) {
  std::set<int> exhausted;
  for (int number = 1; number < kNumbers; ++number) {
    const Classification found = Classify(static_cast<CUresult>(number));
    switch (found.severity) {
      case Severity::kFatal:
        EXPECT_EQ(found.code, absl::StatusCode::kInternal) << number;
        break;
      case Severity::kConfiguration:
        EXPECT_EQ(found.code, absl::StatusCode::kFailedPrecondition) << number;
        break;
      case Severity::kRequest:
        if (found.code == absl::StatusCode::kResourceExhausted) {
          exhausted.insert(number);
        } else {
          EXPECT_EQ(found.code, absl::StatusCode::kInternal) << number;
        }
        break;
    }
  }
  EXPECT_EQ(exhausted, (std::set<int>{CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_TOO_MANY_PEERS}));
}

TEST(CudaErrorsTest, SuccessIsOk) {
  const Classification success = Classify(CUDA_SUCCESS);
  EXPECT_EQ(success.severity, Severity::kRequest);
  EXPECT_EQ(success.code, absl::StatusCode::kOk);
  EXPECT_STREQ(success.name, "CUDA_SUCCESS");
  EXPECT_EQ(CudaStatus(CUDA_SUCCESS, "cuInit", "ignored"), absl::OkStatus());
}

TEST(CudaErrorsTest, AnUnknownNumberIsFatal) {
  for (const int number : {9, 917, 998, 1000, kNumbers - 1}) {
    const Classification unknown = Classify(static_cast<CUresult>(number));
    EXPECT_EQ(unknown.severity, Severity::kFatal) << number;
    EXPECT_EQ(unknown.code, absl::StatusCode::kInternal) << number;
  }
}

// All but the details, which say the same to programs.
void ExpectLike(const absl::Status& status, const absl::Status& wanted) {
  EXPECT_EQ(status.code(), wanted.code());
  EXPECT_EQ(status.message(), wanted.message());
}

TEST(CudaErrorsTest, MessagesNameCallErrorAndDetail) {
  ExpectLike(CudaStatus(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate", "4194304 bytes"),
             absl::ResourceExhaustedError("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY: 4194304 bytes"));
  ExpectLike(CudaStatus(CUDA_ERROR_NOT_SUPPORTED, "cuMemCreate"),
             absl::FailedPreconditionError("cuMemCreate: CUDA_ERROR_NOT_SUPPORTED"));
  ExpectLike(CudaStatus(static_cast<CUresult>(1010), "cuGraphLaunch", "lane 2"),
             absl::InternalError("cuGraphLaunch: unknown CUDA error 1010: lane 2"));
}

TEST(DeviceHealthTest, WhatIsNotFatalLeavesItWell) {
  int told = 0;
  DeviceHealth health([&told] { ++told; });
  EXPECT_EQ(health.Check(CUDA_SUCCESS, "cuInit"), absl::OkStatus());
  EXPECT_EQ(health.Check(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate", "1 byte").code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(health.Check(CUDA_ERROR_NO_BINARY_FOR_GPU, "cuModuleLoadData").code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(health.Check(CUDA_ERROR_INVALID_VALUE, "cuMemMap").code(), absl::StatusCode::kInternal);
  EXPECT_EQ(health.status(), absl::OkStatus());
  EXPECT_EQ(told, 0);
}

TEST(DeviceHealthTest, TheFirstFatalErrorStays) {
  int told = 0;
  absl::Status when_told;
  const DeviceHealth* self = nullptr;
  DeviceHealth health([&] {
    ++told;
    when_told = self->status();
  });
  self = &health;
  ExpectLike(health.Check(CUDA_ERROR_ILLEGAL_ADDRESS, "cuEventQuery", "lane 1"),
             absl::InternalError("cuEventQuery: CUDA_ERROR_ILLEGAL_ADDRESS: lane 1"));
  const absl::Status lost =
      absl::InternalError("cuEventQuery: CUDA_ERROR_ILLEGAL_ADDRESS: the device is lost");
  ExpectLike(health.status(), lost);
  ExpectLike(when_told, lost);
  health.Note(CUDA_ERROR_ECC_UNCORRECTABLE, "cuGraphLaunch");
  health.Note(CUDA_SUCCESS, "cuGraphLaunch");
  ExpectLike(health.status(), lost);
  EXPECT_EQ(told, 1);
}

TEST(DeviceHealthTest, ALossCanBeOfAnyError) {
  int told = 0;
  DeviceHealth health([&told] { ++told; });
  health.Lose(CUDA_ERROR_OUT_OF_MEMORY, "cuStreamSynchronize");
  health.Lose(CUDA_ERROR_INVALID_VALUE, "cuEventSynchronize");
  health.Note(CUDA_ERROR_ILLEGAL_ADDRESS, "cuGraphLaunch");
  ExpectLike(
      health.status(),
      absl::InternalError("cuStreamSynchronize: CUDA_ERROR_OUT_OF_MEMORY: the device is lost"));
  EXPECT_EQ(told, 1);
}

TEST(DeviceHealthTest, LackOfHostMemoryCostsTheMessageOnly) {
  DeviceHealth health;
  no_memory = true;
  const absl::StatusCode lack = CudaStatus(CUDA_ERROR_OUT_OF_MEMORY, "cuMemCreate").code();
  const absl::StatusCode fatal = health.Check(CUDA_ERROR_ILLEGAL_ADDRESS, "cuEventQuery").code();
  const absl::StatusCode lost = health.status().code();
  no_memory = false;
  EXPECT_EQ(lack, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(fatal, absl::StatusCode::kInternal);
  EXPECT_EQ(lost, absl::StatusCode::kInternal);
  ExpectLike(health.status(),
             absl::InternalError("cuEventQuery: CUDA_ERROR_ILLEGAL_ADDRESS: the device is lost"));
}

TEST(DeviceHealthTest, NobodyNeedsToBeTold) {
  DeviceHealth health;
  health.Note(static_cast<CUresult>(1020), "cuGraphLaunch");
  EXPECT_EQ(health.status().code(), absl::StatusCode::kInternal);
}

TEST(DeviceHealthTest, ManyThreadsSeeOneLoss) {
  constexpr int kThreads = 4;
  constexpr CUresult kErrors[kThreads] = {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED,
                                          CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_ASSERT};
  constexpr const char* kCalls[kThreads] = {"call0", "call1", "call2", "call3"};
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> told = 0;
    DeviceHealth health([&told] { ++told; });
    std::latch start(kThreads);
    std::vector<absl::Status> seen(kThreads);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        // Healthy or lost, never something between.
        const absl::Status before = health.status();
        EXPECT_TRUE(before.ok() || before == health.status());
        health.Note(kErrors[i], kCalls[i]);
        seen[i] = health.status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(told, 1);
    EXPECT_THAT(seen, ::testing::Each(health.status()));
    int matches = 0;
    for (int i = 0; i < kThreads; ++i) {
      matches += health.status() == CudaStatus(kErrors[i], kCalls[i], "the device is lost");
    }
    EXPECT_EQ(matches, 1) << health.status();
  }
}

}  // namespace
}  // namespace tetrad::cuda
