#include <cuda_fp16.h>
#include "kernels/sm90/gemm.cuh"
#define E(name, format, Format, slot, slots, ...) \
extern "C" __global__ void __launch_bounds__(tetrad::sm90::kThreads, 1) tetrad_sm90_##format##_##name(const __grid_constant__ tetrad::sm90::GemmArguments arguments) { \
  tetrad::sm90::RunGemm<tetrad::sm90::InstanceOf<slot, slots, __VA_ARGS__>, tetrad::sm90::Format>(arguments); }
#ifndef ONLY
#define ONLY a, fp16, Fp16Format, 43008, 5, 64, 80, 96, 128
#endif
#define EE(...) E(__VA_ARGS__)
EE(ONLY)
