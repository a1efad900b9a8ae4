// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// RawConnection: an HTTP/2 peer (RFC 9113) that does what an RPC library would
// not: it leaves things half said, reads nothing, or vanishes.
//
// It grants the daemon the 64 KiB of window that HTTP/2 begins with and never
// more. Only Data() and Receive() read from the socket; as long as they are not
// called, nothing is acknowledged. For one thread; the destructor closes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"

#include "engine/support/unique_fd.h"

namespace tetrad::e2e {

class RawConnection {
 public:
  enum class Begin { kNothing, kPreface };

  // "unix:PATH" or "HOST:PORT" on loopback.
  explicit RawConnection(const std::string& address, Begin begin = Begin::kPreface);

  // The peer did not end the connection, as far as was looked.
  bool open() const { return open_; }
  int fd() const { return socket_.get(); }

  // Waits for the daemon's settings and acknowledges them: gRPC holds a peer only
  // to those it has acknowledged.
  bool AcceptSettings(absl::Duration limit);

  void Send(const std::string& bytes);
  void Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload);
  // A call of "/tetrad.v1.Gemm/Execute"; `padding` bytes of metadata besides, and
  // `timeout` as HTTP/2 carries it, e.g. "100m".
  void Call(uint32_t stream, const std::string& path, size_t padding = 0,
            const std::string& timeout = {});
  // One whole message, as far as the daemon lets it in.
  void Message(uint32_t stream, const std::string& message);
  // The first `bytes` of one of `message_bytes`.
  void PartOfMessage(uint32_t stream, size_t bytes, uint32_t message_bytes);
  void HalfClose(uint32_t stream);
  void ResetStream(uint32_t stream);
  // Ends the connection with a TCP reset.
  void Abort();

  // Reads until something was handled. False if nothing came for so long, or the
  // peer ended the connection.
  bool Receive(absl::Duration limit);
  // Reads until the peer ends the stream or the connection; false if it does not.
  bool WaitForEnd(uint32_t stream, absl::Duration limit);
  // Of a stream: what the peer ended it with, as text that has "grpc-status" and
  // its value as gRPC writes them; empty if it did not.
  std::string Trailers(uint32_t stream) const;
  bool Refused(uint32_t stream) const;
  bool going_away() const { return going_away_; }

  // The 9 bytes before a payload.
  static std::string FrameHead(size_t bytes, uint8_t type, uint8_t flags, uint32_t stream);
  static const std::string& Preface();

  static constexpr uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6,
                           kGoAway = 7, kWindowUpdate = 8;
  static constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4;

 private:
  struct Stream {
    int64_t window = 0;
    std::string headers;  // of all header frames
    bool ended = false;
    bool refused = false;
  };
  Stream& StreamOf(uint32_t stream);
  void Data(uint32_t stream, const std::string& payload);
  void Handle(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload);

  UniqueFd socket_;
  bool open_ = false;
  bool going_away_ = false;
  bool accepted_settings_ = false;
  std::string received_;
  int64_t initial_window_ = 65535, connection_window_ = 65535;
  std::map<uint32_t, Stream> streams_;
};

}  // namespace tetrad::e2e
