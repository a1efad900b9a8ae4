# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
# cmake -Dsource=... -Dinput=... -Doutput=... -Dversion=... -Dcompiler=... -P write-version.cmake
# Writes the version with the commit checked out now, "-dirty" if the tree differs from it;
# run by every build, and touches the file only if that changed.
execute_process(COMMAND git -C "${source}" describe --always --dirty --abbrev=12 --exclude=*
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  set(commit unknown)
endif()
configure_file("${input}" "${output}" @ONLY)
