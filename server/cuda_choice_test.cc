// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/cuda_choice.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tetrad {
namespace {

using ::testing::HasSubstr;

const std::vector<cuda::DeviceInfo> kDevices = {
    {"GPU-11111111-2222-3333-4444-555555555555", "NVIDIA H200", 90},
    {"GPU-1111aaaa-2222-3333-4444-555555555555", "NVIDIA B200", 100},
};

TEST(CudaChoiceTest, DevicesByUuidOrItsBeginning) {
  for (const char* wanted :
       {"cuda:GPU-1111aaaa-2222-3333-4444-555555555555", "cuda:GPU-1111a", "cuda:GPU-1111A"}) {
    const auto picked = PickCudaDevice(wanted, kDevices);
    ASSERT_TRUE(picked.ok()) << picked.status();
    EXPECT_EQ(picked->name, "NVIDIA B200") << wanted;
  }
}

TEST(CudaChoiceTest, AllMeansTheOnlyOne) {
  const auto one = PickCudaDevice("cuda:all", {kDevices.data(), 1});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->uuid, kDevices[0].uuid);
}

TEST(CudaChoiceTest, WhatIsRefusedListsWhatThereIs) {
  const struct {
    const char* wanted;
    absl::StatusCode code;
    const char* text;
  } kCases[] = {
      {"cuda:all", absl::StatusCode::kFailedPrecondition, "one device so far"},
      {"cuda:GPU-1111", absl::StatusCode::kInvalidArgument, "several"},
      {"cuda:GPU-2", absl::StatusCode::kFailedPrecondition, "no such GPU"},
      {"cuda:GPU-1111aaaa-2222-3333-4444-5555555555550", absl::StatusCode::kFailedPrecondition,
       "no such GPU"},
      {"cuda:GPU-", absl::StatusCode::kInvalidArgument, "UUID"},
      {"cuda:", absl::StatusCode::kInvalidArgument, "UUID"},
      {"cuda:0", absl::StatusCode::kInvalidArgument, "UUID"},
      {"cuda:1111a", absl::StatusCode::kInvalidArgument, "UUID"},
  };
  for (const auto& test : kCases) {
    const absl::Status status = PickCudaDevice(test.wanted, kDevices).status();
    EXPECT_EQ(status.code(), test.code) << test.wanted << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.text)) << test.wanted;
    EXPECT_THAT(std::string(status.message()), HasSubstr(kDevices[1].uuid)) << test.wanted;
    EXPECT_EQ(PickCudaDevice(test.wanted, {}).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

TEST(CudaChoiceTest, TheDefaultsOfTheConfigurationAreTheDevices) {
  const Config config;
  const cuda::CudaDevice::Options options;
  EXPECT_EQ(config.lanes, options.lanes);
  EXPECT_EQ(config.max_in_flight, options.max_in_flight);
  EXPECT_EQ(config.graph_bytes, options.graph_bytes);
  EXPECT_EQ(config.plan_device_bytes, options.plan_bytes);
}

}  // namespace
}  // namespace tetrad
