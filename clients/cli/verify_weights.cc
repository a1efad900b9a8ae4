// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "clients/cli/verify_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "clients/cli/expected_values.h"
#include "clients/cli/progress.h"
#include "kernels/float16.h"

namespace tetrad::cli {
namespace {

// Operands of one request with its reply stay below this, and below half of
// what the daemon takes.
constexpr int64_t kRequestBytes = 64 << 20;

absl::StatusOr<v1::WeightsInfo> FindWeights(const Session& session, const std::string& reference) {
  auto list = session.client.ListWeights(session.call);
  if (!list.ok()) return list.status();
  const size_t mark = reference.find('@');
  int64_t version = 0;
  if (mark != std::string::npos && !absl::SimpleAtoi(reference.substr(mark + 1), &version)) {
    return absl::InvalidArgumentError(absl::StrCat("weights ", reference, ": no version number"));
  }
  const v1::WeightsInfo* found = nullptr;
  for (const v1::WeightsInfo& info : list->weights()) {
    if (info.name() != reference.substr(0, mark) || !info.sealed()) continue;
    if (version != 0 && info.version() != version) continue;
    if (found == nullptr || info.version() > found->version()) found = &info;
  }
  if (found == nullptr) {
    return absl::NotFoundError(absl::StrCat("the daemon holds no sealed weights ", reference));
  }
  return *found;
}

std::vector<v1::GroupDims> DimsOf(const v1::WeightsInfo& weights) {
  std::vector<v1::GroupDims> dims(weights.groups().begin(), weights.groups().end());
  if (dims.size() == 1) dims.resize(static_cast<size_t>(weights.group_count()), dims[0]);
  return dims;
}

class WeightsProbe {
 public:
  WeightsProbe(const Session& session, const ExpectedValues& expected, std::string weights,
               std::vector<v1::GroupDims> dims)
      : session_(session),
        expected_(expected),
        weights_(std::move(weights)),
        dims_(std::move(dims)) {
    for (const v1::GroupDims& d : dims_) {
      depth_ = std::max(depth_, d.k());
      line_.elements += int64_t{d.n()} * d.k();
    }
  }

  absl::StatusOr<VerifyLine> Run(int64_t max_inline_bytes) {
    int64_t bytes_per_row = 0;  // of every group
    for (const v1::GroupDims& d : dims_) bytes_per_row += int64_t{d.k()} * 2 + int64_t{d.n()} * 4;
    const int64_t budget = std::min(kRequestBytes, max_inline_bytes / 2);
    const auto chunk = static_cast<int32_t>(std::clamp<int64_t>(budget / bytes_per_row, 1, depth_));
    ProgressBar bar(session_.output.err, session_.output.progress, "verifying",
                    ProgressBar::Unit::kCount);
    for (int32_t first = 0; first < depth_; first += chunk) {
      bar.Update(first, depth_);
      absl::Status status = ProbeColumns(first, std::min(chunk, depth_ - first));
      if (!status.ok()) return status;
    }
    line_.pass = line_.failure.empty();
    line_.check = !line_.pass ? "FAILED" : line_.worst == 0 ? "bit-equal" : "within bound";
    return line_;
  }

 private:
  // One-hot rows for columns [first, first + count) of every group that has them.
  absl::Status ProbeColumns(int32_t first, int32_t count) {
    v1::ExecuteRequest request;
    v1::Signature& signature = *request.mutable_signature();
    signature.set_weights(weights_);
    signature.set_activation_type(v1::ACTIVATION_TYPE_FP16);
    signature.set_output_type(v1::OUTPUT_TYPE_FP32);
    std::string& activations = *request.mutable_inline_operands()->mutable_activations();
    int64_t outputs = 0;
    for (const v1::GroupDims& d : dims_) {
      const int32_t rows = std::clamp(d.k() - first, 0, count);
      signature.mutable_exact()->add_m(rows);
      outputs += int64_t{rows} * d.n();
      for (int32_t row = 0; row < rows; ++row) AppendOneHot(d.k(), first + row, &activations);
    }
    const auto response = session_.client.Execute(request, session_.call);
    if (!response.ok()) return response.status();
    if (static_cast<int64_t>(response->output().size()) != outputs * int64_t{sizeof(float)}) {
      return absl::InternalError(absl::StrCat("the reply has ", response->output().size(),
                                              " bytes, not ", outputs * sizeof(float)));
    }
    line_.kernel = response->kernel();
    line_.device_us += response->timings().device_us();
    line_.floor_us += response->floor_us();
    line_.share = line_.device_us > 0 ? line_.floor_us / line_.device_us : 0;
    CompareReply(response->output(), signature, first);
    return absl::OkStatus();
  }

  static void AppendOneHot(int32_t k, int32_t hot, std::string* activations) {
    const size_t at = activations->size();
    activations->resize(at + static_cast<size_t>(k) * 2);
    const uint16_t one = EncodeFp16(1.0f);
    std::memcpy(activations->data() + at + static_cast<size_t>(hot) * 2, &one, sizeof(one));
  }

  void CompareReply(const std::string& output, const v1::Signature& signature, int32_t first) {
    const char* at = output.data();
    for (size_t g = 0; g < dims_.size(); ++g) {
      for (int32_t row = 0; row < signature.exact().m(static_cast<int>(g)); ++row) {
        for (int32_t n = 0; n < dims_[g].n(); ++n, at += sizeof(float)) {
          float actual;
          std::memcpy(&actual, at, sizeof(actual));
          Note(g, n, first + row, expected_.at(g, n, first + row), actual);
        }
      }
    }
  }

  void Note(size_t group, int32_t n, int32_t k, float expected, float actual) {
    ++line_.compared;
    if (actual == expected) return;  // -0 and 0 alike
    const double allowed = kProducerRelativeBound * std::fabs(double{expected});
    const double error = std::fabs(double{actual} - double{expected});
    const double share = error <= allowed ? error / allowed : HUGE_VAL;  // NaN is beyond, too
    line_.worst = std::max(line_.worst, share);
    if (share > 1 && line_.failure.empty()) {
      line_.failure = absl::StrCat("group ", group, " row ", n, " k ", k, ": the daemon has ",
                                   actual, ", the file says ", expected);
    }
  }

  const Session& session_;
  const ExpectedValues& expected_;
  const std::string weights_;
  const std::vector<v1::GroupDims> dims_;
  int32_t depth_ = 0;  // the largest k
  VerifyLine line_;
};

}  // namespace

absl::StatusOr<VerifyLine> VerifyWeights(const Session& session, const VerifyCommand& command) {
  const auto weights = FindWeights(session, command.weights);
  if (!weights.ok()) return weights.status();
  const std::vector<v1::GroupDims> dims = DimsOf(*weights);
  const auto expected = ExpectedValues::Load(command.expected, command.pattern, dims);
  if (!expected.ok()) return expected.status();
  const auto status = session.client.GetStatus(session.call);
  if (!status.ok()) return status.status();

  const std::string reference = absl::StrCat(weights->name(), "@", weights->version());
  WeightsProbe probe(session, *expected, reference, dims);
  auto line = probe.Run(status->max_inline_bytes());
  if (!line.ok()) return line.status();
  line->shape = absl::StrCat("weights:", reference);
  line->description = absl::StrCat("G=", dims.size(), " against ", command.expected);
  line->reproduce = absl::StrCat("tetradctl verify --shapes weights:", reference, " --expected ",
                                 command.expected, " --tensor-pattern '", command.pattern, "'");
  return line;
}

}  // namespace tetrad::cli
