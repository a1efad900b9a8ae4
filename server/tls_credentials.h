// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// The credentials of one TLS listener, TLS 1.2 or later: every handshake uses
// the certificate, key and roots that the files hold by then. Connections that
// are open stay.
//
// Built on the library's fetcher of certificates, which asks before each
// handshake and keeps what it had if it cannot use the answer. Both `files` and
// the credentials must outlive the server, which does not keep them. Thread-safe.
#pragma once

#include <memory>

#include <grpcpp/security/server_credentials.h>

#include "server/tls_files.h"

namespace tetrad {

// One for each listener: what a listener has fetched is counted in it.
// `require_client`: clients without a certificate are refused; else one they
// send is verified, if there are roots.
std::shared_ptr<grpc::ServerCredentials> TlsCredentials(const TlsFiles& files, bool require_client);

}  // namespace tetrad
