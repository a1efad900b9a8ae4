// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Seeded operands of a GroupedCase as they go over the wire, and views of them
// for the FP64 reference. Padding of blocked scale planes, rows beyond the live
// ones and their row scales hold junk, because none of it may matter. The same
// (case, kind, seed) gives the same bytes on every platform, whatever the
// number of threads. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tetrad/v1/gemm.pb.h"

#include "clients/cli/grouped_case.h"
#include "kernels/problem.h"
#include "kernels/sample.h"

namespace tetrad::cli {

class CaseData {
 public:
  CaseData(const GroupedCase& c, DataKind kind, uint64_t seed, int threads);
  CaseData(const CaseData&) = delete;
  CaseData& operator=(const CaseData&) = delete;

  const WireLayout& layout() const { return layout_; }
  const std::vector<uint8_t>& codes() const { return codes_; }
  const std::vector<uint8_t>& scales() const { return scales_; }
  // alpha_B per group; empty unless the case has them.
  const std::vector<float>& alpha_b() const { return alpha_b_; }

  // The request; naming a plan or signature is left to the caller. Scales of A
  // may be padded to what the plan wants of them.
  v1::ExecuteRequest& request() { return request_; }

  // The groups with all their operands, C at `output`. Valid while this object
  // and `output`, of layout().c_bytes, are.
  std::vector<GroupProblem> Problems(const std::string& output) const;

 private:
  void Fill(DataKind kind, uint64_t seed, int threads);
  void ChooseAlphas(uint64_t seed, const std::vector<float>& chosen);

  const GroupedCase case_;
  const WireLayout layout_;
  std::vector<uint8_t> codes_, scales_;
  std::vector<int64_t> code_offsets_, scale_offsets_;
  std::vector<float> alpha_;  // alpha_A * alpha_B
  std::vector<float> alpha_b_;
  v1::ExecuteRequest request_;
};

// Offset of the first byte of `output` that belongs to no live element and is
// not zero; -1 if there is none.
int64_t FindNonzeroGap(const GroupedCase& c, const WireLayout& layout, const std::string& output);

}  // namespace tetrad::cli
