// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: any bytes as a checkpoint's files. Nothing may crash, leak or read out of bounds,
// what is accepted must be consistent, and what is refused must say so in printable text.
// By hand:  clang++ -fsanitize=fuzzer,address,undefined  with this file and the library's sources.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "engine/checkpoint/dialect.h"
#include "engine/checkpoint/printable.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/shard_index.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

constexpr size_t kLongestMessage = 4096;

void CheckRefusal(const absl::Status& status) {
  const std::string_view message(status.message().data(), status.message().size());
  TETRAD_CHECK(!message.empty() && message.size() <= kLongestMessage);
  TETRAD_CHECK(FindInvalidUtf8(message) == std::string_view::npos);
  TETRAD_CHECK(message.find('\n') == std::string_view::npos);
}

// Tensors cover the data without overlap and can be found and read.
void CheckFile(const SafetensorsFile& file) {
  uint64_t covered = 0;
  for (size_t i = 0; i < file.header().size(); ++i) {
    const TensorInfo tensor = file.header().tensor(i);
    covered += tensor.bytes();
    const auto found = file.header().Find(tensor.name);
    TETRAD_CHECK(found.has_value() && found->begin == tensor.begin && found->end == tensor.end);
    std::vector<uint8_t> out(std::min<uint64_t>(tensor.bytes(), 64));
    TETRAD_CHECK(file.Read(tensor, tensor.bytes() - out.size(), out).ok());
  }
  TETRAD_CHECK(covered <= file.file().bytes());
}

void Run(std::string_view bytes) {
  UniqueFd fd(memfd_create("fuzz", MFD_CLOEXEC));
  TETRAD_CHECK(write(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  auto adopted = RegularFile::Adopt(std::move(fd), "fuzz");
  TETRAD_CHECK(adopted.ok());
  const auto file = SafetensorsFile::Open(*std::move(adopted));
  file.ok() ? CheckFile(*file) : CheckRefusal(file.status());

  const auto index = ShardIndex::Parse(bytes);
  if (!index.ok()) CheckRefusal(index.status());
  const auto dialect = DeclaredDialect(bytes);
  if (!dialect.ok()) CheckRefusal(dialect.status());
}

}  // namespace
}  // namespace tetrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tetrad::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
