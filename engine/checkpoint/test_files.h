// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Test support: builds safetensors files, right and wrong ones, in folders that clean up.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tetrad::testing {

// A folder of its own below `parent`, removed with all it holds.
class TempFolder {
 public:
  explicit TempFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path());
  TempFolder(const TempFolder&) = delete;
  ~TempFolder();

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path Write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

struct TestTensor {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::string bytes;
};

// A file with this header text, whatever it says, and these data bytes.
std::string RawSafetensors(std::string_view header, std::string_view data);

// A well-formed file with these tensors, packed in this order.
std::string Safetensors(const std::vector<TestTensor>& tensors);

// The bytes of FP32 values, little endian.
std::string F32Bytes(const std::vector<float>& values);

// The bytes of a file.
std::string Slurp(const std::filesystem::path& path);

}  // namespace tetrad::testing
