// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/e2e/raw_connection.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tetrad::e2e {
namespace {

constexpr size_t kFrameBytes = 16 << 10;

uint32_t Number(const char* bytes) {
  uint32_t number;
  std::memcpy(&number, bytes, sizeof(number));
  return ntohl(number);
}

std::string Prefix(size_t message_bytes) {
  std::string prefix(5, '\0');
  const uint32_t size = htonl(static_cast<uint32_t>(message_bytes));
  std::memcpy(prefix.data() + 1, &size, sizeof(size));
  return prefix;
}

// HPACK (RFC 7541): an integer with a prefix of 7 bits, Huffman coding off.
std::string Text(const std::string& text) {
  std::string out;
  size_t rest = text.size();
  if (rest < 127) return static_cast<char>(rest) + text;
  out.push_back(127);
  for (rest -= 127; rest >= 128; rest /= 128) out.push_back(static_cast<char>(rest % 128 + 128));
  out.push_back(static_cast<char>(rest));
  return out + text;
}

std::string Field(const std::string& name, const std::string& value) {
  return absl::StrCat(absl::string_view("\0", 1), Text(name), Text(value));
}

UniqueFd ConnectTo(const std::string& address) {
  if (address.starts_with("unix:")) {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::strncpy(to.sun_path, address.c_str() + 5, sizeof(to.sun_path) - 1);
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return {};
    return socket;
  }
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return {};
  return socket;
}

}  // namespace

const std::string& RawConnection::Preface() {
  static const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  return preface;
}

RawConnection::RawConnection(const std::string& address, Begin begin)
    : socket_(ConnectTo(address)), open_(socket_.get() >= 0) {
  if (begin == Begin::kNothing) return;
  Send(Preface());
  Frame(kSettings, 0, 0, "");
}

void RawConnection::Send(const std::string& bytes) {
  for (size_t sent = 0; open_ && sent < bytes.size();) {
    const ssize_t size =
        ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    open_ = size > 0;
    sent += open_ ? static_cast<size_t>(size) : 0;
  }
}

std::string RawConnection::FrameHead(size_t bytes, uint8_t type, uint8_t flags, uint32_t stream) {
  std::string frame(9, '\0');
  const uint32_t head[] = {htonl(static_cast<uint32_t>(bytes << 8 | type)), htonl(stream)};
  std::memcpy(frame.data(), &head[0], 4);
  frame[4] = static_cast<char>(flags);
  std::memcpy(frame.data() + 5, &head[1], 4);
  return frame;
}

void RawConnection::Frame(uint8_t type, uint8_t flags, uint32_t stream,
                          const std::string& payload) {
  Send(FrameHead(payload.size(), type, flags, stream) + payload);
}

void RawConnection::Call(uint32_t stream, const std::string& path, size_t padding,
                         const std::string& timeout) {
  StreamOf(stream);
  std::string headers =
      absl::StrCat("\x83\x86\x04", Text(path), "\x01", Text("localhost"),
                   Field("content-type", "application/grpc"), Field("te", "trailers"));
  if (!timeout.empty()) headers += Field("grpc-timeout", timeout);
  if (padding > 0) headers += Field("x-padding", std::string(padding, 'p'));
  // HEADERS and as many CONTINUATIONs (type 9) as it takes.
  for (size_t at = 0; at == 0 || at < headers.size(); at += kFrameBytes) {
    const bool last = at + kFrameBytes >= headers.size();
    Frame(at == 0 ? kHeaders : 9, last ? kEndHeaders : 0, stream, headers.substr(at, kFrameBytes));
  }
}

void RawConnection::Message(uint32_t stream, const std::string& message) {
  Data(stream, Prefix(message.size()));
  for (size_t at = 0; open_ && at < message.size(); at += kFrameBytes) {
    Data(stream, message.substr(at, kFrameBytes));
  }
}

void RawConnection::PartOfMessage(uint32_t stream, size_t bytes, uint32_t message_bytes) {
  Data(stream, Prefix(message_bytes));
  const std::string block(kFrameBytes, '\0');
  for (size_t sent = 0; open_ && sent < bytes; sent += block.size()) {
    Data(stream, block.substr(0, bytes - sent));
  }
}

void RawConnection::HalfClose(uint32_t stream) { Frame(kData, kEndStream, stream, ""); }

void RawConnection::ResetStream(uint32_t stream) {
  Frame(kReset, 0, stream, std::string("\0\0\0\x08", 4));  // CANCEL
}

void RawConnection::Abort() {
  const linger at_once{1, 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  socket_ = UniqueFd();
  open_ = false;
}

RawConnection::Stream& RawConnection::StreamOf(uint32_t stream) {
  return streams_.emplace(stream, Stream{.window = initial_window_}).first->second;
}

void RawConnection::Data(uint32_t stream, const std::string& payload) {
  const auto bytes = static_cast<int64_t>(payload.size());
  Stream& to = StreamOf(stream);
  while (open_ && (to.window < bytes || connection_window_ < bytes)) {
    if (!Receive(absl::Seconds(1)) || to.ended) open_ = false;
  }
  Frame(kData, 0, stream, payload);
  to.window -= bytes;
  connection_window_ -= bytes;
}

bool RawConnection::Receive(absl::Duration limit) {
  pollfd ready{socket_.get(), POLLIN, 0};
  char buffer[16 << 10];
  if (!open_ || ::poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(limit))) != 1) {
    return false;
  }
  const ssize_t size = ::recv(socket_.get(), buffer, sizeof(buffer), 0);
  if (size <= 0) return open_ = false;
  received_.append(buffer, static_cast<size_t>(size));
  while (received_.size() >= 9) {
    const size_t length = Number(received_.data()) >> 8;
    if (received_.size() < 9 + length) break;
    Handle(static_cast<uint8_t>(received_[3]), static_cast<uint8_t>(received_[4]),
           Number(received_.data() + 5), received_.substr(9, length));
    received_.erase(0, 9 + length);
  }
  return true;
}

void RawConnection::Handle(uint8_t type, uint8_t flags, uint32_t stream,
                           const std::string& payload) {
  const bool ends = (flags & kEndStream) != 0;
  if (type == kGoAway) going_away_ = true;
  if (type == kReset) {
    StreamOf(stream).ended = true;
    StreamOf(stream).refused = Number(payload.data()) == 7;  // REFUSED_STREAM
  }
  if (type == kHeaders) {
    StreamOf(stream).headers += payload;
    StreamOf(stream).ended |= ends;
  }
  if (type == kData && ends) StreamOf(stream).ended = true;
  if (type == kWindowUpdate) {
    (stream == 0 ? connection_window_ : StreamOf(stream).window) += Number(payload.data());
  }
  if (type == kPing && (flags & kAck) == 0) Frame(kPing, kAck, 0, payload);
  if (type != kSettings || (flags & kAck) != 0) return;
  for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
    if (payload[at] != 0 || payload[at + 1] != 4) continue;  // SETTINGS_INITIAL_WINDOW_SIZE
    const int64_t initial = Number(payload.data() + at + 2);
    for (auto& [id, each] : streams_) each.window += initial - initial_window_;
    initial_window_ = initial;
  }
  Frame(kSettings, kAck, 0, "");
  accepted_settings_ = true;
}

bool RawConnection::AcceptSettings(absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  while (!accepted_settings_ && absl::Now() < until && Receive(until - absl::Now())) {
  }
  return accepted_settings_;
}

bool RawConnection::WaitForEnd(uint32_t stream, absl::Duration limit) {
  const absl::Time until = absl::Now() + limit;
  while (open_ && !StreamOf(stream).ended) {
    const absl::Duration left = until - absl::Now();
    if (left <= absl::ZeroDuration()) return false;
    Receive(std::min(left, absl::Seconds(1)));
  }
  return true;
}

std::string RawConnection::Trailers(uint32_t stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? "" : found->second.headers;
}

bool RawConnection::Refused(uint32_t stream) const {
  const auto found = streams_.find(stream);
  return found != streams_.end() && found->second.refused;
}

}  // namespace tetrad::e2e
