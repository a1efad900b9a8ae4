// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// Grouped GEMMs of kernels/sample.h as requests, and their outputs judged
// against the reference.
#pragma once

#include <string>
#include <vector>

#include "kernels/compare.h"
#include "kernels/sample.h"
#include "tests/e2e/daemon.h"

namespace tetrad::e2e {

using UploadMessages = std::vector<v1::UploadRequest>;

// Header and chunks of at most `chunk_bytes` for the B operands.
UploadMessages UploadMessagesOf(const Operands& operands, const std::string& name,
                                size_t chunk_bytes = 64 << 10);
grpc::Status Upload(const Stubs& stubs, const UploadMessages& messages,
                    v1::UploadResponse* response);
// Uploads and seals; name@version. A failure fails the test.
std::string Register(const Stubs& stubs, const Operands& operands, const std::string& name);

// Exact M, dense output, in the form the operands have.
v1::Signature SignatureOf(const Operands& operands, const std::string& weights);
v1::InlineOperands InlineOf(const Operands& operands);
v1::ExecuteRequest RequestOf(const Operands& operands, const std::string& weights);

// Copies a dense output into C and compares all elements bit by bit.
Verdict Judge(const Operands& operands, const std::string& output);

// Executes with the reply judged; a failure fails the test.
void ExecuteAndVerify(const Stubs& stubs, const Operands& operands,
                      const v1::ExecuteRequest& request);

// A request that keeps one thread of the CPU device busy for a second or so.
// Its weights are registered as `name`.
v1::ExecuteRequest RegisterSlow(const Stubs& stubs, const std::string& name);

}  // namespace tetrad::e2e
