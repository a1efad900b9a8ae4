// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// TlsFiles: the certificate, key and roots that TLS listeners use, read again
// when they changed. Files are replaced one after the other, and sometimes by
// rubbish, so new ones are taken only together and only if the key fits the
// certificate and all is in order: else what was good goes on serving. (The RPC
// library's own watcher gives up the old ones first, and then serves nobody.)
//
// Open() and Reload() are for one thread, the others for any. Errors are
// INVALID_ARGUMENT and name option and file; none holds a part of a key.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "server/config.h"
#include "server/log.h"
#include "server/watched_file.h"

namespace tetrad {

// Whether the options of TLS go together.
absl::Status CheckTlsOptions(const Config& config);

struct TlsPems {
  std::string certificate;
  std::string key;
  std::string client_ca;  // empty: clients are not asked
  absl::Time expires;     // the certificate
};

class TlsFiles {
 public:
  // Of a configuration with a certificate.
  static absl::StatusOr<std::unique_ptr<TlsFiles>> Open(const Config& config, Log& log);
  // A refusal is logged once per change of a file.
  void Reload(Log& log);
  std::shared_ptr<const TlsPems> current() const;
  // The files as they are now are not what serves.
  bool refused() const { return refused_; }

 private:
  explicit TlsFiles(const Config& config);
  bool Look();
  absl::StatusOr<TlsPems> Check() const;
  void Take(TlsPems pems, Log& log);

  WatchedFile certificate_;
  WatchedFile key_;
  WatchedFile client_ca_;  // an empty path: none
  std::atomic<bool> refused_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<const TlsPems> current_;  // guarded by mutex_
};

}  // namespace tetrad
