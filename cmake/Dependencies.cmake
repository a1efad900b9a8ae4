# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
# Finds every dependency. Names, minimum versions and reasons: tools/dependencies.tsv.
set(TETRAD_DEPENDENCIES "${CMAKE_SOURCE_DIR}/tools/dependencies.tsv")
set_property(DIRECTORY "${CMAKE_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             "${TETRAD_DEPENDENCIES}")

# tetrad_find_package(NAME [find_package arguments...]): REQUIRED, at least the
# table's version. The version is compared here, not by find_package, because
# some packages (Abseil) accept only an exact match of the version asked for.
# A macro: find_package must set its variables in the caller's scope.
macro(tetrad_find_package name)
  set(_tetrad_column "[^\t]+\t")
  file(STRINGS "${TETRAD_DEPENDENCIES}" _tetrad_row
       REGEX "^[^#\t]+\t${_tetrad_column}${_tetrad_column}${name}\t")
  if(NOT _tetrad_row MATCHES "^[^\t]+\t([^\t]+)\t([^\t]+)\t")
    message(FATAL_ERROR "${name} has no row in tools/dependencies.tsv")
  endif()
  set(_tetrad_packages "${CMAKE_MATCH_1}")
  set(_tetrad_minimum "${CMAKE_MATCH_2}")
  find_package(${name} ${ARGN})
  if(NOT ${name}_FOUND)
    message(FATAL_ERROR "${name} not found; on Debian and Ubuntu it comes with ${_tetrad_packages} "
                        "(tools/install-packages)")
  elseif(DEFINED ${name}_VERSION AND NOT _tetrad_minimum STREQUAL "-"
         AND ${name}_VERSION VERSION_LESS _tetrad_minimum)
    message(FATAL_ERROR "${name} ${${name}_VERSION} is older than ${_tetrad_minimum}")
  endif()
endmacro()

tetrad_find_package(Threads)
tetrad_find_package(absl CONFIG)
tetrad_find_package(nlohmann_json CONFIG)
if(TETRAD_BUILD_TESTS)
  tetrad_find_package(GTest)
  tetrad_find_package(Python3 COMPONENTS Interpreter)
endif()
if(TETRAD_BUILD_SERVER)
  tetrad_find_package(Protobuf)
  tetrad_find_package(OpenSSL)
  tetrad_find_package(gRPC CONFIG)
  tetrad_find_package(prometheus-cpp CONFIG)
  tetrad_find_package(CLI11 CONFIG)
  tetrad_find_package(civetweb CONFIG)
  tetrad_find_package(spdlog CONFIG)
  tetrad_find_package(tomlplusplus CONFIG)
endif()
