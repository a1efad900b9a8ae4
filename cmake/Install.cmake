# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: the programs, the C++ client with the headers that
# users may include, the wire with its schema, and the package find_package(Tetrad) finds.
# All paths are relative to the prefix, which may be moved afterwards (docs/cpp-client.md).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Our headers keep the spelling they have in the tree, below a folder of their own.
set(tetrad_include "${CMAKE_INSTALL_INCLUDEDIR}/tetrad")
set(tetrad_package "${CMAKE_INSTALL_LIBDIR}/cmake/Tetrad")

install(TARGETS tetradd tetradctl RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime)
install(FILES "${CMAKE_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)

set_target_properties(tetrad_client PROPERTIES EXPORT_NAME client)
set_target_properties(tetrad_proto PROPERTIES EXPORT_NAME proto)
target_include_directories(tetrad_proto PUBLIC "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
install(TARGETS tetrad_client tetrad_proto EXPORT tetrad_targets
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
  FILE_SET HEADERS DESTINATION "${tetrad_include}" COMPONENT development)
install(DIRECTORY "${PROJECT_BINARY_DIR}/proto/tetrad" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  COMPONENT development FILES_MATCHING PATTERN "*.pb.h")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/proto/tetrad" DESTINATION "${CMAKE_INSTALL_DATADIR}/tetrad/proto"
  COMPONENT development FILES_MATCHING PATTERN "*.proto")

install(EXPORT tetrad_targets NAMESPACE Tetrad:: FILE TetradTargets.cmake
  DESTINATION "${tetrad_package}" COMPONENT development)
configure_package_config_file("${CMAKE_SOURCE_DIR}/cmake/TetradConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/TetradConfig.cmake" INSTALL_DESTINATION "${tetrad_package}"
  PATH_VARS CMAKE_INSTALL_DATADIR)
# Before 1.0 a minor version may change what callers see.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/TetradConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/TetradConfig.cmake" "${PROJECT_BINARY_DIR}/TetradConfigVersion.cmake"
  DESTINATION "${tetrad_package}" COMPONENT development)
