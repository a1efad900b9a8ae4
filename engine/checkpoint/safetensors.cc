// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/checkpoint/printable.h"
#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(RegularFile file) {
  const auto invalid = [&](const auto&... reason) {
    return ReasonError(Reason::kIllegalCheckpoint, absl::StrCat(file.name(), ": ", reason...));
  };
  constexpr uint64_t kPrefixBytes = 8;
  std::array<uint8_t, kPrefixBytes + 1> start{};
  if (file.bytes() < start.size()) {
    return invalid("truncated: ", file.bytes(), " bytes cannot hold a safetensors header");
  }
  TETRAD_RETURN_IF_ERROR(file.ReadAt(0, start));
  uint64_t header_bytes = 0;
  for (size_t i = kPrefixBytes; i-- > 0;) header_bytes = header_bytes << 8 | start[i];
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return invalid("header of ", header_bytes, " bytes, limit ", kMaxSafetensorsHeaderBytes);
  }
  if (header_bytes > file.bytes() - kPrefixBytes) {
    return invalid("truncated: header of ", header_bytes, " bytes in a file of ", file.bytes());
  }
  if (header_bytes == 0 || start[kPrefixBytes] != '{') {
    return invalid("header does not start with '{'");
  }
  const uint64_t data_begin = kPrefixBytes + header_bytes;
  std::string json(header_bytes, '\0');
  TETRAD_RETURN_IF_ERROR(
      file.ReadAt(kPrefixBytes, {reinterpret_cast<uint8_t*>(json.data()), json.size()}));
  auto header = SafetensorsHeader::Parse(json, file.bytes() - data_begin);
  if (!header.ok()) {
    return WithPrefix(absl::StrCat(file.name(), ": "), header.status());
  }
  return SafetensorsFile(std::move(file), *std::move(header), data_begin);
}

absl::Status SafetensorsFile::CheckRange(const TensorInfo& tensor, uint64_t offset,
                                         uint64_t bytes) const {
  if (offset <= tensor.bytes() && bytes <= tensor.bytes() - offset) return absl::OkStatus();
  return ReasonError(Reason::kIllegalCheckpoint,
                     absl::StrCat(file_.name(), ": tensor `", Printable(tensor.name), "` has ",
                                  tensor.bytes(), " bytes; wanted ", bytes, " from byte ", offset));
}

absl::Status SafetensorsFile::Read(const TensorInfo& tensor, uint64_t offset,
                                   std::span<uint8_t> out) const {
  TETRAD_RETURN_IF_ERROR(CheckRange(tensor, offset, out.size()));
  return file_.ReadAt(data_begin_ + tensor.begin + offset, out);
}

absl::Status SafetensorsFile::ReadRows(const TensorInfo& tensor, uint64_t offset, uint64_t stride,
                                       uint64_t row_bytes, std::span<uint8_t> out) const {
  if (out.empty()) return absl::OkStatus();
  const uint64_t last = (out.size() / row_bytes - 1) * stride;
  TETRAD_RETURN_IF_ERROR(CheckRange(tensor, offset, last + row_bytes));
  return file_.ReadRowsAt(data_begin_ + tensor.begin + offset, stride, row_bytes, out);
}

}  // namespace tetrad
