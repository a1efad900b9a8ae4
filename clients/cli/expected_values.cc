// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/expected_values.h"

#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

namespace tetrad::cli {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr char kExpertMark[] = "{expert}";

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) return absl::DataLossError(absl::StrCat("cannot read ", path));
  return bytes;
}

absl::Status Broken(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, " is no usable safetensors file: ", why));
}

// Where the values of an F32 tensor of this shape start, in bytes from the
// start of the file.
absl::StatusOr<size_t> FindTensor(const std::string& path, const nlohmann::json& header,
                                  const std::string& name, const std::vector<int64_t>& shape,
                                  size_t data_start, size_t file_bytes) {
  const auto entry = header.find(name);
  if (entry == header.end()) {
    return absl::NotFoundError(absl::StrCat(path, " has no tensor ", name));
  }
  const nlohmann::json& tensor = *entry;
  const auto dtype = tensor.find("dtype"), dims = tensor.find("shape"),
             offsets = tensor.find("data_offsets");
  if (dtype == tensor.end() || dims == tensor.end() || offsets == tensor.end() ||
      offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
      !(*offsets)[1].is_number_unsigned()) {
    return Broken(path, absl::StrCat("tensor ", name, " lacks dtype, shape or data_offsets"));
  }
  if (*dtype != "F32" || *dims != nlohmann::json(shape)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", name, " is ", dtype->dump(),
                                                   " ", dims->dump(), ", expected F32 [",
                                                   absl::StrJoin(shape, ","), "]"));
  }
  size_t bytes = sizeof(float);
  for (const int64_t extent : shape) bytes *= static_cast<size_t>(extent);
  const auto begin = (*offsets)[0].get<size_t>(), end = (*offsets)[1].get<size_t>();
  if (begin > end || end - begin != bytes || end > file_bytes - data_start) {
    return Broken(path, absl::StrCat("tensor ", name, " lies at ", offsets->dump(), ", needs ",
                                     bytes, " bytes of ", file_bytes - data_start));
  }
  return data_start + begin;
}

}  // namespace

absl::StatusOr<ExpectedValues> ExpectedValues::Load(const std::string& path,
                                                    const std::string& pattern,
                                                    const std::vector<v1::GroupDims>& groups) {
  absl::StatusOr<std::string> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  ExpectedValues values;
  values.bytes_ = *std::move(bytes);
  const std::string& file = values.bytes_;

  uint64_t header_bytes = 0;
  if (file.size() < kLengthBytes) return Broken(path, "shorter than its length field");
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes > file.size() - kLengthBytes) return Broken(path, "header beyond its end");
  const size_t data_start = kLengthBytes + header_bytes;
  const auto header = nlohmann::json::parse(file.begin() + kLengthBytes, file.begin() + data_start,
                                            nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return Broken(path, "its header is not a JSON object");

  const bool per_group = pattern.find(kExpertMark) != std::string::npos;
  for (size_t g = 0; g < groups.size(); ++g) {
    const int64_t n = groups[g].n(), k = groups[g].k();
    absl::StatusOr<size_t> offset =
        per_group ? FindTensor(path, header,
                               absl::StrReplaceAll(pattern, {{kExpertMark, absl::StrCat(g)}}),
                               {n, k}, data_start, file.size())
                  : FindTensor(path, header, pattern, {static_cast<int64_t>(groups.size()), n, k},
                               data_start, file.size());
    if (!offset.ok()) return offset.status();
    if (!per_group) *offset += g * static_cast<size_t>(n * k) * sizeof(float);
    values.groups_.push_back({*offset, k});
  }
  return values;
}

float ExpectedValues::at(size_t group, int64_t n, int64_t k) const {
  const Group& g = groups_[group];
  float value;
  std::memcpy(&value, bytes_.data() + g.offset + static_cast<size_t>(n * g.k + k) * sizeof(float),
              sizeof(value));
  return value;
}

}  // namespace tetrad::cli
