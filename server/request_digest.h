// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The digest by which an idempotency key knows its request again: SHA-256 over
// the message as it is serialised deterministically, operands included, so that
// nobody gets another request's outcome by a collision. Pure; as many bytes are
// looked at as the message has, so large ones are not for an RPC thread.
#pragma once

#include <google/protobuf/message_lite.h>

#include "server/ticket_table.h"

namespace tetrad {

RequestDigest DigestOf(const google::protobuf::MessageLite& request);

}  // namespace tetrad
