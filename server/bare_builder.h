// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// BareBuilder: an option of a server builder that leaves out plugins. Merely
// linking the reflection library puts its service into every RPC server of the
// process. Thread-safe; cannot fail.
#pragma once

#include <memory>
#include <vector>

#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/impl/server_builder_plugin.h>

namespace tetrad {

class BareBuilder final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
  }
};

}  // namespace tetrad
