// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/client_bytes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "engine/support/error_detail.h"
#include "engine/support/status_macros.h"

namespace tetrad {
namespace {

absl::Status Refusal(const std::string& field, int64_t bytes, int64_t used, int64_t limit,
                     std::string_view whose, Reason reason) {
  return ReasonError(reason, absl::StrCat(field, ": ", bytes, " bytes wanted, ",
                                          absl::string_view(whose.data(), whose.size()), " hold ",
                                          used, " of ", limit));
}

}  // namespace

std::shared_ptr<ClientBytes> ClientBytes::Create(std::string_view field, const Limits& limits) {
  return std::shared_ptr<ClientBytes>(new ClientBytes(field, limits));
}

absl::StatusOr<ClientBytes::Hold> ClientBytes::Take(std::string_view client, int64_t bytes) {
  Hold hold(shared_from_this(), client);
  TETRAD_RETURN_IF_ERROR(hold.Grow(bytes));
  return hold;
}

absl::Status ClientBytes::Add(std::string_view client, int64_t held, int64_t bytes) {
  const int64_t most = std::min(limits_.all, limits_.client);
  if (bytes > most - held) {
    return FieldError({.field = field_,
                       .value = absl::StrCat(held, "+", bytes),
                       .limit = absl::StrCat("at most ", most, " bytes of one request")},
                      Reason::kMessageTooLarge);
  }
  std::lock_guard lock(mutex_);
  if (bytes > limits_.all - used_) {
    return Refusal(field_, bytes, used_, limits_.all, "all clients", Reason::kTableFull);
  }
  const auto found = by_client_.find(client);
  const int64_t used = found == by_client_.end() ? 0 : found->second;
  if (bytes > limits_.client - used) {
    return Refusal(field_, bytes, used, limits_.client, "this client's", Reason::kQuota);
  }
  if (bytes == 0) return absl::OkStatus();
  if (found == by_client_.end()) {
    by_client_.emplace(client, bytes);
  } else {
    found->second += bytes;
  }
  used_ += bytes;
  return absl::OkStatus();
}

void ClientBytes::Give(std::string_view client, int64_t bytes) {
  std::lock_guard lock(mutex_);
  used_ -= bytes;
  const auto found = by_client_.find(client);
  if ((found->second -= bytes) == 0) by_client_.erase(found);
}

int64_t ClientBytes::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_;
}

int64_t ClientBytes::used_bytes(std::string_view client) const {
  std::lock_guard lock(mutex_);
  const auto found = by_client_.find(client);
  return found == by_client_.end() ? 0 : found->second;
}

ClientBytes::Hold& ClientBytes::Hold::operator=(Hold&& other) noexcept {
  ShrinkTo(0);
  from_ = std::move(other.from_);
  client_ = std::move(other.client_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

absl::Status ClientBytes::Hold::Grow(int64_t bytes) {
  TETRAD_RETURN_IF_ERROR(from_->Add(client_, bytes_, bytes));
  bytes_ += bytes;
  return absl::OkStatus();
}

void ClientBytes::Hold::ShrinkTo(int64_t bytes) {
  if (bytes >= bytes_) return;
  from_->Give(client_, bytes_ - bytes);
  bytes_ = bytes;
}

}  // namespace tetrad
