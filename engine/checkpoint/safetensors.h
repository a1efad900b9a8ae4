// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// SafetensorsFile: one open safetensors file, its validated header and its bytes.
//
// A file is 8 bytes of header length (little endian), that many bytes of JSON, then the data.
// Nothing is allocated before the length has been checked against the format's limit and the
// file's own size. Tensors may start at any byte offset, so data is only handed out as bytes.
// Malformed files are INVALID_ARGUMENT naming the file, the reason and the tensor; a file that
// changes while it is open is DATA_LOSS. Const members thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/checkpoint/regular_file.h"
#include "engine/checkpoint/safetensors_header.h"

namespace tetrad {

class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(RegularFile file);

  const SafetensorsHeader& header() const { return header_; }
  const RegularFile& file() const { return file_; }

  // Fills `out` from byte `offset` of `tensor`, which must be one of this header's.
  absl::Status Read(const TensorInfo& tensor, uint64_t offset, std::span<uint8_t> out) const;
  // Fills `out` with rows of `row_bytes`, which must divide its size and not be 0; they begin
  // `stride` bytes apart in `tensor`, the first at its byte `offset`.
  absl::Status ReadRows(const TensorInfo& tensor, uint64_t offset, uint64_t stride,
                        uint64_t row_bytes, std::span<uint8_t> out) const;

 private:
  absl::Status CheckRange(const TensorInfo& tensor, uint64_t offset, uint64_t bytes) const;

  SafetensorsFile(RegularFile file, SafetensorsHeader header, uint64_t data_begin)
      : file_(std::move(file)), header_(std::move(header)), data_begin_(data_begin) {}

  RegularFile file_;
  SafetensorsHeader header_;
  uint64_t data_begin_;
};

}  // namespace tetrad
