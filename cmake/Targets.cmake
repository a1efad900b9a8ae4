# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
# tetrad_library(NAME SOURCES ... [DEPS ...])   a static library of one folder
# tetrad_program(NAME SOURCES ... [DEPS ...])   an executable in ${CMAKE_BINARY_DIR}/bin
# tetrad_test(NAME SOURCES ... [DEPS ...] [LABELS unit] [TIMEOUT 120])
# tetrad_version(NAME OUT)   a target that writes version.cc of version.cc.in here with the commit
#                            checked out now, at every build; OUT gets the path of version.cc
# tetrad_fuzzer(NAME SOURCES ... CORPUS folder [DEPS ...] [PARTS ... PARTS_DEPS ...])   in the tree of the
#                            preset fuzz, and only there, build/fuzz/fuzz/NAME for libFuzzer. PARTS are the
#                            sources it needs of a library that takes long to build, used there instead of DEPS
# tetrad_fuzz_test(NAME ...)   that, and in other trees the test NAME_fuzz_test, which replays corpus and mutations
# tetrad_gpu_tests           builds every test with label gpu
add_custom_target(tetrad_gpu_tests)
if(TETRAD_FUZZ)
  add_custom_target(tetrad_fuzzers)
endif()

function(tetrad_version name out)
  set(version_cc "${CMAKE_CURRENT_BINARY_DIR}/version.cc")
  add_custom_target(${name} BYPRODUCTS "${version_cc}"
    COMMAND "${CMAKE_COMMAND}" "-Dsource=${CMAKE_SOURCE_DIR}"
      "-Dinput=${CMAKE_CURRENT_SOURCE_DIR}/version.cc.in" "-Doutput=${version_cc}"
      "-Dversion=${PROJECT_VERSION}"
      "-Dcompiler=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
      -P "${CMAKE_SOURCE_DIR}/cmake/write-version.cmake"
    DEPENDS version.cc.in "${CMAKE_SOURCE_DIR}/cmake/write-version.cmake"
    COMMENT "Writing the version" VERBATIM)
  set(${out} "${version_cc}" PARENT_SCOPE)
endfunction()

# In a bundle (tools/bundle) a program finds its libraries, and they find each other, in the folder
# beside its own. For the latter it must be RPATH, which holds for what a library needs, too; RUNPATH,
# the linker's default, does not. The same where it is built and where it is installed: CMake would
# pad another path with an empty one, and that means the working folder.
function(tetrad_bundled name)
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)
  target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
endfunction()

function(tetrad_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  # What the options ask of our own sources is nothing to users of an installed library.
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:tetrad_options> ${arg_DEPS})
endfunction()

function(tetrad_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tetrad_options ${arg_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  tetrad_bundled(${name})
endfunction()

function(tetrad_test name)
  if(NOT TETRAD_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  # A test takes as long to compile as the headers it includes: its sources share them.
  list(LENGTH arg_SOURCES sources)
  if(sources GREATER 1)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  target_link_libraries(${name} PRIVATE tetrad_options ${arg_DEPS} GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
  if("gpu" IN_LIST arg_LABELS)
    tetrad_bundled(${name})
    add_dependencies(tetrad_gpu_tests ${name})
  endif()
endfunction()

function(tetrad_fuzzer name)
  if(NOT TETRAD_FUZZ)
    return()
  endif()
  cmake_parse_arguments(arg "" "CORPUS" "SOURCES;DEPS;PARTS;PARTS_DEPS" ${ARGN})
  if(arg_PARTS)
    set(arg_DEPS ${arg_PARTS_DEPS})
  endif()
  add_executable(${name}_fuzz ${arg_SOURCES} ${arg_PARTS})
  target_link_libraries(${name}_fuzz PRIVATE tetrad_options ${arg_DEPS})
  target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name}_fuzz PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/fuzz" OUTPUT_NAME ${name})
  add_dependencies(tetrad_fuzzers ${name}_fuzz)
  file(WRITE "${CMAKE_BINARY_DIR}/fuzz/${name}.corpus" "${CMAKE_CURRENT_SOURCE_DIR}/${arg_CORPUS}\n")
endfunction()

function(tetrad_fuzz_test name)
  tetrad_fuzzer(${name} ${ARGN})
  if(TETRAD_FUZZ OR NOT TETRAD_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "CORPUS" "SOURCES;DEPS;PARTS;PARTS_DEPS" ${ARGN})
  add_executable(${name}_fuzz_test ${arg_SOURCES})
  target_link_libraries(${name}_fuzz_test PRIVATE tetrad_options tetrad_fuzz_replay ${arg_DEPS})
  set_target_properties(${name}_fuzz_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name}_fuzz_test COMMAND ${name}_fuzz_test "${CMAKE_CURRENT_SOURCE_DIR}/${arg_CORPUS}")
  set_tests_properties(${name}_fuzz_test PROPERTIES LABELS fuzz TIMEOUT 300)
endfunction()
