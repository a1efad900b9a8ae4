# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
# cmake -Dnvcc=... -Dcompiler=... -Dsource=... -Droot=... -Dimage=... -Dformat=cubin|ptx -Dcode=sm_90
#       -Darchitecture=compute_90 -Dresources=... -P compile-cuda.cmake
# Compiles one image of a CUDA source; leaves what it depends on in IMAGE.d and the report of ptxas
# in RESOURCES. A warning is an error, spilled registers and local memory too, and what ptxas says of
# wgmma that it serialises (C7510 to C7518), to it no warning. C7519, a fence that it adds, is none.
set(options -std=c++20 -O3 ${lineinfo} --expt-relaxed-constexpr -Werror all-warnings
  -Xptxas -v,-warn-spills,-warn-lmem-usage -gencode "arch=${architecture},code=${code}"
  -ccbin "${compiler}" "-I${root}")
execute_process(
  COMMAND "${nvcc}" -${format} ${options} -MD -MF "${image}.d" -MT "${image}" -o "${image}" "${source}"
  RESULT_VARIABLE result OUTPUT_VARIABLE said ERROR_VARIABLE report)
file(WRITE "${resources}" "${report}")
if(NOT result EQUAL 0 OR report MATCHES "\\(C751[0-8]\\)")
  file(REMOVE "${image}")
  message(FATAL_ERROR "${said}${report}")
endif()
