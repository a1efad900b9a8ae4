# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
# The CUDA toolkit, if there is one: nvcc and the headers, nothing to link. CMake knows no
# language CUDA here: device code becomes images (kernels/cuda/images.h) in custom commands,
# and host code is plain C++ that finds the driver at run time.
#
# TETRAD_CUDA_LINEINFO   line tables in the images, for profilers; three quarters of their size
# TETRAD_BUILD_CUDA   whether GPU parts are built; default: if the toolkit is found. ON without
#                     one ends the configuration.
# tetrad_cuda_images(TARGET [TABLE f] SOURCES a.cu ...)   compiles each source for every architecture and
#                     embeds the images in TARGET, compressed, with the table that KernelImages(), or f(),
#                     returns. The source property TETRAD_CUDA_SPECIFIC names architectures more, e.g. 90a; with
#                     TETRAD_CUDA_ONLY the ones it names are all, and there is no PTX.
# tetrad_gpu_test(NAME SOURCES ... [DEPS ...])   a test with label gpu that may skip
set(TETRAD_CUDA_MINIMUM 12.8)  # the first that compiles for sm_100
set(TETRAD_CUDA_ARCHITECTURES 80 90 100)
set(TETRAD_CUDA_PTX 80)

option(TETRAD_CUDA_LINEINFO "Line tables in device code, for profilers" OFF)
find_package(CUDAToolkit ${TETRAD_CUDA_MINIMUM} QUIET)
if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
  set(tetrad_cuda_found ON)
else()
  set(tetrad_cuda_found OFF)
endif()
option(TETRAD_BUILD_CUDA "Build the GPU parts (needs the CUDA toolkit)" ${tetrad_cuda_found})
if(TETRAD_BUILD_CUDA AND NOT tetrad_cuda_found)
  message(FATAL_ERROR "TETRAD_BUILD_CUDA needs a CUDA toolkit from ${TETRAD_CUDA_MINIMUM} on; "
                      "CUDAToolkit_ROOT says where it is")
elseif(TETRAD_BUILD_CUDA)
  message(STATUS "Tetrad: GPU parts are built with nvcc ${CUDAToolkit_VERSION} "
                 "(${CUDAToolkit_NVCC_EXECUTABLE})")
elseif(tetrad_cuda_found)
  message(STATUS "Tetrad: GPU parts are not built, TETRAD_BUILD_CUDA is off")
else()
  message(STATUS "Tetrad: GPU parts are not built, "
                 "no CUDA toolkit from ${TETRAD_CUDA_MINIMUM} on was found")
endif()

# One image: NAME.cubin or NAME.ptx with NAME.resources, what ptxas says of registers and memory.
function(tetrad_cuda_image source name code format)
  set(image "${CMAKE_CURRENT_BINARY_DIR}/${name}.${format}")
  string(REPLACE "sm_" "compute_" architecture "${code}")
  add_custom_command(OUTPUT "${image}" BYPRODUCTS "${CMAKE_CURRENT_BINARY_DIR}/${name}.resources"
    COMMAND "${CMAKE_COMMAND}" "-Dnvcc=${CUDAToolkit_NVCC_EXECUTABLE}"
      "-Dcompiler=${CMAKE_CXX_COMPILER}" "-Dsource=${CMAKE_CURRENT_SOURCE_DIR}/${source}"
      "-Droot=${CMAKE_SOURCE_DIR}" "-Dimage=${image}" "-Dformat=${format}" "-Dcode=${code}"
      "-Darchitecture=${architecture}"
      "-Dresources=${CMAKE_CURRENT_BINARY_DIR}/${name}.resources"
      "-Dlineinfo=$<$<BOOL:${TETRAD_CUDA_LINEINFO}>:-lineinfo>"
      -P "${CMAKE_SOURCE_DIR}/cmake/compile-cuda.cmake"
    DEPENDS "${source}" "${CMAKE_SOURCE_DIR}/cmake/compile-cuda.cmake"
      "${CUDAToolkit_NVCC_EXECUTABLE}"
    DEPFILE "${image}.d"
    COMMENT "Compiling ${source} for ${code}" VERBATIM)
endfunction()

# NAME.fatbin of NAME.cubin or NAME.ptx: the one image as a fat binary, which the driver decompresses
# when it loads it; a seventh of the size. The mode exists from nvcc 12.8 on, the oldest we take, and
# asks for driver 550 or newer, with CUDA 13 for 580, as its cubins do.
function(tetrad_cuda_fat_binary name code format)
  set(image "${CMAKE_CURRENT_BINARY_DIR}/${name}.${format}")
  string(REPLACE "sm_" "compute_" architecture "${code}")
  add_custom_command(OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin"
    COMMAND "${CUDAToolkit_NVCC_EXECUTABLE}" -fatbin --compress-mode=size
      -ccbin "${CMAKE_CXX_COMPILER}" -gencode "arch=${architecture},code=${code}"
      -o "${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin" "${image}"
    DEPENDS "${image}" "${CUDAToolkit_NVCC_EXECUTABLE}"
    COMMENT "Compressing ${name}.${format}" VERBATIM)
endfunction()

function(tetrad_cuda_images target)
  cmake_parse_arguments(arg "" "TABLE" "SOURCES" ${ARGN})
  set(TETRAD_IMAGE_TABLE KernelImages)
  if(arg_TABLE)
    set(TETRAD_IMAGE_TABLE ${arg_TABLE})
  endif()
  set(images "")
  set(TETRAD_IMAGE_BYTES "")
  set(TETRAD_IMAGE_SYMBOLS "")
  set(TETRAD_IMAGE_ROWS "")
  foreach(source IN LISTS arg_SOURCES)
    get_filename_component(unit "${source}" NAME_WE)
    get_source_file_property(specific "${source}" TETRAD_CUDA_SPECIFIC)
    if(NOT specific)
      set(specific "")
    endif()
    get_source_file_property(only "${source}" TETRAD_CUDA_ONLY)
    if(only)
      set(kinds ${only})
    else()
      set(kinds ${TETRAD_CUDA_ARCHITECTURES} ${specific} ptx)
    endif()
    foreach(kind IN LISTS kinds)
      set(is_specific false)
      if(kind STREQUAL "ptx")
        set(capability ${TETRAD_CUDA_PTX})
        set(name ${unit}_compute_${capability})
        set(format ptx)
        set(form kPtx)
        set(code compute_${capability})
      else()
        string(REGEX MATCH "^[0-9]+" capability ${kind})
        if(NOT kind STREQUAL capability)
          set(is_specific true)
        endif()
        set(name ${unit}_sm_${kind})
        set(format cubin)
        set(form kCubin)
        set(code sm_${kind})
      endif()
      tetrad_cuda_image("${source}" ${name} ${code} ${format})
      tetrad_cuda_fat_binary(${name} ${code} ${format})
      set(image "${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin")
      list(APPEND images "${image}")
      string(APPEND TETRAD_IMAGE_BYTES "TETRAD_IMAGE(${name}, \"${image}\");\n")
      string(APPEND TETRAD_IMAGE_SYMBOLS "TETRAD_IMAGE_SYMBOLS(${name});\n")
      string(APPEND TETRAD_IMAGE_ROWS "    {\"${unit}\", ${capability}, ImageForm::${form}, "
        "${is_specific}, {tetrad_image_${name}, tetrad_image_end_${name}}},\n")
    endforeach()
  endforeach()
  set(table "${CMAKE_CURRENT_BINARY_DIR}/${target}_images.cc")
  configure_file("${CMAKE_SOURCE_DIR}/cmake/images.cc.in" "${table}" @ONLY)
  set_source_files_properties("${table}" PROPERTIES OBJECT_DEPENDS "${images}")
  target_sources(${target} PRIVATE "${table}")
endfunction()

# Without a GPU all tests of such a program skip, which it says in the words of kernels/cuda/gpu_test_device.h
# or in those of GoogleTest, and CTest reports the program as skipped.
function(tetrad_gpu_test name)
  tetrad_test(${name} ${ARGN} LABELS gpu TIMEOUT 600)
  if(TETRAD_BUILD_TESTS)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON
      SKIP_REGULAR_EXPRESSION "no device: every test is skipped;\\[  PASSED  \\] 0 tests")
  endif()
endfunction()
