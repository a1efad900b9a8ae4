// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "engine/signature_request.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {

absl::StatusOr<Signature> SignatureFor(const SignatureRequest& request,
                                       const WeightsVersion& weights, const std::string& device,
                                       const SignatureLimits& limits) {
  const std::vector<GroupDims>& dims = weights.spec().groups;
  Signature signature;
  signature.types = request.types;
  signature.types.b_scale_layout = weights.layout();
  signature.form = request.form;
  signature.m_source = request.m_source;
  signature.row_scale = request.row_scale;
  signature.c_stride = request.c_stride;
  signature.capacity_rows = request.capacity_rows;
  signature.device = device;
  const size_t want_m = signature.device_m() ? 0 : dims.size();
  if (request.m.size() != want_m) {
    return FieldError({"signature.exact.m", absl::StrCat(request.m.size(), " values"),
                       absl::StrCat(want_m, " values")},
                      Reason::kSizeMismatch,
                      absl::StrCat("m: ", request.m.size(), " values, must be ", want_m, " (",
                                   dims.size(), " groups in ", weights.reference(), ")"));
  }
  signature.groups.reserve(dims.size());
  for (size_t g = 0; g < dims.size(); ++g) {
    signature.groups.push_back({want_m != 0 ? request.m[g] : 0, dims[g].n, dims[g].k});
  }
  return Canonicalize(std::move(signature), limits);
}

absl::Status CheckWeightsFit(const Signature& signature, const WeightsVersion& weights) {
  const WeightsSpec& spec = weights.spec();
  bool fits = spec.groups.size() == signature.groups.size() &&
              weights.layout() == signature.types.b_scale_layout;
  for (size_t g = 0; fits && g < spec.groups.size(); ++g) {
    fits = spec.groups[g] == GroupDims{signature.groups[g].n, signature.groups[g].k};
  }
  if (fits) return absl::OkStatus();
  return FieldError({"weights", weights.reference()}, Reason::kShapesDiffer,
                    absl::StrCat("weights ", weights.reference(),
                                 ": not of the shapes and scale layout the plan was made for"));
}

}  // namespace tetrad
