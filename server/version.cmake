# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
# cmake -Dsource=... -Dinput=... -Doutput=... -Dversion=... -Dcompiler=... -P version.cmake
# Writes the version with the commit checked out now; run by the build when HEAD moves.
execute_process(COMMAND git -C "${source}" rev-parse --short=12 HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  set(commit unknown)
endif()
configure_file("${input}" "${output}" @ONLY)
