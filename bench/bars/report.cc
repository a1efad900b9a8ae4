// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/bars/report.h"

#include <array>
#include <fstream>
#include <memory>

#include <openssl/evp.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tetrad::bars {

nlohmann::ordered_json LineOf(const Bar& bar, const absl::StatusOr<Measured>& measured,
                              const Provenance& provenance, const std::optional<Clocks>& clocks) {
  nlohmann::ordered_json line = {{"id", bar.id}, {"value", nullptr}, {"spread", nullptr}};
  if (measured.ok()) {
    line["value"] = measured->value;
    line["spread"] = {measured->low, measured->high};
  }
  const bool ok = measured.ok() && Holds(bar, measured->value);
  line["unit"] = bar.unit;
  line["limit"] = bar.limit;
  line["ok"] = ok;
  line["device"] = provenance.device;
  line["driver"] = provenance.driver;
  if (clocks.has_value()) {
    line["clocks"] = {{"sm_mhz", clocks->sm_mhz}, {"memory_mhz", clocks->memory_mhz}};
  } else {
    line["clocks"] = "unknown";
  }
  line["binary_sha256"] = provenance.binary_sha256;
  line["commit"] = provenance.commit;
  line["date"] = provenance.date;
  if (!measured.ok()) {
    line["reason"] = std::string(measured.status().message());
  } else if (!ok && !measured->remark.empty()) {
    line["reason"] = measured->remark;
  }
  return line;
}

absl::StatusOr<std::string> Sha256(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  bool good = file.good() && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  std::array<char, 1 << 16> buffer;
  while (good && !file.eof()) {
    file.read(buffer.data(), buffer.size());
    good = !file.bad() &&
           EVP_DigestUpdate(context.get(), buffer.data(), static_cast<size_t>(file.gcount())) == 1;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (!good || EVP_DigestFinal_ex(context.get(), digest.data(), &size) != 1) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  }
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest.data()), size});
}

}  // namespace tetrad::bars
