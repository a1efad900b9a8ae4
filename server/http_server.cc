// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <CivetServer.h>

#include "absl/strings/str_cat.h"

#include "engine/support/status_macros.h"
#include "server/status.h"

namespace tetrad {
namespace {

// Twenty slow connections leave a dozen threads for everybody else.
constexpr const char* kThreads = "32";
constexpr const char* kTimeoutMs = "2000";

struct Page {
  const char* status = "200 OK";
  const char* type = "text/plain; charset=utf-8";
  std::string body;
  const char* header = "";
};

}  // namespace

class HttpServer::Handler {
 public:
  explicit Handler(Pages pages) : pages_(std::move(pages)) {}

  // Of every request there is, before the library looks for files, scripts or
  // web sockets, about some of which it answers what is not HTTP.
  static int Begin(mg_connection* connection) {
    const auto* server = static_cast<CivetServer*>(mg_get_user_data(mg_get_context(connection)));
    static_cast<const Handler*>(server->getUserContext())->Reply(connection);
    return 1;
  }

 private:
  void Reply(mg_connection* connection) const {
    const mg_request_info& request = *mg_get_request_info(connection);
    const std::string_view method = request.request_method == nullptr ? "" : request.request_method;
    const bool with_body = method != "HEAD";
    const Page answer = with_body && method != "GET"
                            ? Page{.status = "405 Method Not Allowed",
                                   .body = "only GET and HEAD are answered\n",
                                   .header = "Allow: GET, HEAD\r\n"}
                            : Find(*connection);
    std::string text = absl::StrCat("HTTP/1.1 ", answer.status, "\r\nContent-Type: ", answer.type,
                                    "\r\nContent-Length: ", answer.body.size(), "\r\n",
                                    answer.header, "Connection: close\r\n\r\n");
    if (with_body) text += answer.body;
    mg_write(connection, text.data(), text.size());
  }

  // The library calls from C, so nothing may be thrown past here.
  Page Find(mg_connection& connection) const noexcept {
    try {
      const mg_request_info& info = *mg_get_request_info(&connection);
      const std::string_view page = info.local_uri == nullptr ? "" : info.local_uri;
      if (page == "/metrics") {
        switch (MayScrape(connection, info)) {
          case Answer::kPage:
            break;
          case Answer::kUnauthorized:
            return {.status = "401 Unauthorized",
                    .body = "a bearer token is wanted\n",
                    .header = "WWW-Authenticate: Bearer\r\n"};
          case Answer::kForbidden:
            return {.status = "403 Forbidden", .body = "group metrics is wanted\n"};
        }
        return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = pages_.metrics()};
      }
      if (page == "/healthz") return {.body = "alive\n"};
      if (page == "/readyz") {
        if (pages_.ready()) return {.body = "ready\n"};
        return {.status = "503 Service Unavailable", .body = "draining\n"};
      }
      return {.status = "404 Not Found", .body = "here are /metrics, /healthz and /readyz\n"};
    } catch (const std::exception&) {
      return {.status = "500 Internal Server Error", .body = {}};
    }
  }

  Answer MayScrape(mg_connection& connection, const mg_request_info& info) const {
    if (!pages_.may_scrape) return Answer::kPage;
    const char* const header = mg_get_header(&connection, "Authorization");
    return pages_.may_scrape({.authorization = header == nullptr ? "" : header,
                              .peer = absl::StrCat(info.remote_addr, ":", info.remote_port)});
  }

  const Pages pages_;
};

HttpServer::HttpServer(ListenAddress address, Pages pages)
    : address_(std::move(address)), handler_(std::make_unique<Handler>(std::move(pages))) {}

// The library looks whether it is to stop only at a connection, or every two
// seconds; so it gets connections until it has.
HttpServer::~HttpServer() {
  std::atomic<bool> stopped{false};
  const std::jthread stop([&] {
    server_.reset();
    stopped = true;
  });
  while (!stopped) {
    Connect(address_).IgnoreError();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const ListenAddress& address,
                                                              Pages pages) {
  TETRAD_RETURN_IF_ERROR(CheckBindable(address));
  TETRAD_ASSIGN_OR_RETURN(const std::string numeric, NumericAddress(address));
  std::unique_ptr<HttpServer> http(new HttpServer(address, std::move(pages)));
  const std::vector<std::string> options = {
      "listening_ports",    numeric,    "num_threads",       kThreads,
      "request_timeout_ms", kTimeoutMs, "enable_keep_alive", "no",
  };
  CivetCallbacks callbacks;
  callbacks.begin_request = &Handler::Begin;
  try {
    http->server_ = std::make_unique<CivetServer>(options, &callbacks, http->handler_.get());
    const std::vector<int> ports = http->server_->getListeningPorts();
    if (!ports.empty()) http->address_.port = ports.front();
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve HTTP on ", address.ToString(), ": ", ErrorText(error.what())));
  }
  return http;
}

}  // namespace tetrad
