// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// A program of somebody who has only the installed package: prints the state
// of the daemon at the address given.
#include <cstdio>

#include "clients/cpp/client.h"
#include "clients/cpp/error_info.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto client = tetrad::Client::Connect(argv[1]);
  if (!client.ok()) {
    std::fprintf(stderr, "%s\n", client.status().ToString().c_str());
    return 1;
  }
  const auto status = (*client)->GetStatus();
  if (!status.ok()) {
    const auto info = tetrad::ErrorInfoOf(status.status());
    std::fprintf(stderr, "%s %s\n", info.has_value() ? info->reason.c_str() : "",
                 status.status().ToString().c_str());
    return 1;
  }
  std::printf("%s %s\n", status->version().c_str(), status->state().c_str());
  return 0;
}
