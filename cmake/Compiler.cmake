# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers and the compiler cache, for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(TETRAD_CCACHE ccache)
if(TETRAD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${TETRAD_CCACHE}")
endif()

add_library(tetrad_options INTERFACE)
target_include_directories(tetrad_options INTERFACE "${CMAKE_SOURCE_DIR}")
# Designated initialisers leave the other members at their defaults on purpose.
target_compile_options(tetrad_options INTERFACE -Wall -Wextra -Werror
  -Wno-missing-field-initializers -fno-math-errno)
# The CPU backend promises the same bits on every instruction set: the compiler
# may not contract a*b+c on its own; kernels ask for fused operations by name.
target_compile_options(tetrad_options INTERFACE -ffp-contract=off)

# Sources that are compiled together look to GCC as if they were headers, and it
# warns of types of an anonymous namespace in what others could see.
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(tetrad_options INTERFACE -Wno-subobject-linkage)
endif()

if(TETRAD_SANITIZE)
  add_compile_options(-fsanitize=${TETRAD_SANITIZE} -fno-omit-frame-pointer)
  if(NOT TETRAD_SANITIZE MATCHES "thread")
    add_compile_options(-fno-sanitize-recover=all)
  endif()
  add_link_options(-fsanitize=${TETRAD_SANITIZE})
  # GCC 12 sees uninitialised variants behind the instrumentation.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(tetrad_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()

# The fuzzers' own build: everything of ours tells libFuzzer where it was, which it
# links to the fuzz targets alone. Warnings are the business of the other builds.
if(TETRAD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TETRAD_FUZZ needs Clang: cmake --preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
  target_compile_options(tetrad_options INTERFACE -Wno-error)
endif()
