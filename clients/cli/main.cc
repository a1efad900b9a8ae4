// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <string>
#include <vector>

#include <unistd.h>

#include "clients/cli/commands.h"
#include "clients/cli/interrupt.h"

int main(int argc, char** argv) {
  const tetrad::cli::Interrupt interrupt;
  const tetrad::cli::Output output{std::cout, std::cerr, /*json=*/false,
                                   /*progress=*/isatty(STDERR_FILENO) != 0};
  return tetrad::cli::Main(std::vector<std::string>(argv + 1, argv + argc), output,
                           interrupt.token());
}
