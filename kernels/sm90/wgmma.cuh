// SPDX-FileCopyrightText: The Tetrad Authors
// SPDX-License-Identifier: Apache-2.0
//
// wgmma of compute capability 9.0a with A in registers: m64nTk16, FP16 or BF16
// operands, FP32 accumulators, B in shared memory in rows of 64 k, 128-byte
// swizzle. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
//
// Wgmma(format, acc, a, b): acc += a * b, with T = 2 * the number of accumulators
// of a thread. TETRAD_WGMMA below defines one width; registers are named by macros
// that list them four at a time.
#pragma once

#include <cstdint>

#include "kernels/cuda/sm90_wgmma.cuh"

namespace tetrad::sm90 {

using cuda::WgmmaCommit;
using cuda::WgmmaFence;
using cuda::WgmmaWait;

// The lower word of cuda::WgmmaDescriptor(), the upper one is the same for all.
__device__ inline uint32_t OperandDescriptor(uint32_t shared) { return shared >> 4; }
__device__ inline uint64_t WholeDescriptor(uint32_t lower) {
  return cuda::WgmmaDescriptor(0) >> 32 << 32 | lower;
}
// Of 16 k, in the descriptor.
inline constexpr uint32_t kDescriptorStep = 16 * 2 / 16;

struct Fp16Format {};
struct Bf16Format {};

// clang-format off
#define TETRAD_ACC_1 "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
#define TETRAD_NAMES_1 "%0, %1, %2, %3"
#define TETRAD_ACC_2 TETRAD_ACC_1, "+f"(acc[4]), "+f"(acc[5]), "+f"(acc[6]), "+f"(acc[7])
#define TETRAD_NAMES_2 TETRAD_NAMES_1 ", %4, %5, %6, %7"
#define TETRAD_ACC_3 TETRAD_ACC_2, "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11])
#define TETRAD_NAMES_3 TETRAD_NAMES_2 ", %8, %9, %10, %11"
#define TETRAD_ACC_4 TETRAD_ACC_3, "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]), "+f"(acc[15])
#define TETRAD_NAMES_4 TETRAD_NAMES_3 ", %12, %13, %14, %15"
#define TETRAD_ACC_5 TETRAD_ACC_4, "+f"(acc[16]), "+f"(acc[17]), "+f"(acc[18]), "+f"(acc[19])
#define TETRAD_NAMES_5 TETRAD_NAMES_4 ", %16, %17, %18, %19"
#define TETRAD_ACC_6 TETRAD_ACC_5, "+f"(acc[20]), "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23])
#define TETRAD_NAMES_6 TETRAD_NAMES_5 ", %20, %21, %22, %23"
#define TETRAD_ACC_7 TETRAD_ACC_6, "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27])
#define TETRAD_NAMES_7 TETRAD_NAMES_6 ", %24, %25, %26, %27"
#define TETRAD_ACC_8 TETRAD_ACC_7, "+f"(acc[28]), "+f"(acc[29]), "+f"(acc[30]), "+f"(acc[31])
#define TETRAD_NAMES_8 TETRAD_NAMES_7 ", %28, %29, %30, %31"
#define TETRAD_ACC_9 TETRAD_ACC_8, "+f"(acc[32]), "+f"(acc[33]), "+f"(acc[34]), "+f"(acc[35])
#define TETRAD_NAMES_9 TETRAD_NAMES_8 ", %32, %33, %34, %35"
#define TETRAD_ACC_10 TETRAD_ACC_9, "+f"(acc[36]), "+f"(acc[37]), "+f"(acc[38]), "+f"(acc[39])
#define TETRAD_NAMES_10 TETRAD_NAMES_9 ", %36, %37, %38, %39"
#define TETRAD_ACC_11 TETRAD_ACC_10, "+f"(acc[40]), "+f"(acc[41]), "+f"(acc[42]), "+f"(acc[43])
#define TETRAD_NAMES_11 TETRAD_NAMES_10 ", %40, %41, %42, %43"
#define TETRAD_ACC_12 TETRAD_ACC_11, "+f"(acc[44]), "+f"(acc[45]), "+f"(acc[46]), "+f"(acc[47])
#define TETRAD_NAMES_12 TETRAD_NAMES_11 ", %44, %45, %46, %47"
#define TETRAD_ACC_13 TETRAD_ACC_12, "+f"(acc[48]), "+f"(acc[49]), "+f"(acc[50]), "+f"(acc[51])
#define TETRAD_NAMES_13 TETRAD_NAMES_12 ", %48, %49, %50, %51"
#define TETRAD_ACC_14 TETRAD_ACC_13, "+f"(acc[52]), "+f"(acc[53]), "+f"(acc[54]), "+f"(acc[55])
#define TETRAD_NAMES_14 TETRAD_NAMES_13 ", %52, %53, %54, %55"
#define TETRAD_ACC_15 TETRAD_ACC_14, "+f"(acc[56]), "+f"(acc[57]), "+f"(acc[58]), "+f"(acc[59])
#define TETRAD_NAMES_15 TETRAD_NAMES_14 ", %56, %57, %58, %59"
#define TETRAD_ACC_16 TETRAD_ACC_15, "+f"(acc[60]), "+f"(acc[61]), "+f"(acc[62]), "+f"(acc[63])
#define TETRAD_NAMES_16 TETRAD_NAMES_15 ", %60, %61, %62, %63"
#define TETRAD_ACC_17 TETRAD_ACC_16, "+f"(acc[64]), "+f"(acc[65]), "+f"(acc[66]), "+f"(acc[67])
#define TETRAD_NAMES_17 TETRAD_NAMES_16 ", %64, %65, %66, %67"
#define TETRAD_ACC_18 TETRAD_ACC_17, "+f"(acc[68]), "+f"(acc[69]), "+f"(acc[70]), "+f"(acc[71])
#define TETRAD_NAMES_18 TETRAD_NAMES_17 ", %68, %69, %70, %71"
#define TETRAD_ACC_19 TETRAD_ACC_18, "+f"(acc[72]), "+f"(acc[73]), "+f"(acc[74]), "+f"(acc[75])
#define TETRAD_NAMES_19 TETRAD_NAMES_18 ", %72, %73, %74, %75"
#define TETRAD_ACC_20 TETRAD_ACC_19, "+f"(acc[76]), "+f"(acc[77]), "+f"(acc[78]), "+f"(acc[79])
#define TETRAD_NAMES_20 TETRAD_NAMES_19 ", %76, %77, %78, %79"
#define TETRAD_ACC_21 TETRAD_ACC_20, "+f"(acc[80]), "+f"(acc[81]), "+f"(acc[82]), "+f"(acc[83])
#define TETRAD_NAMES_21 TETRAD_NAMES_20 ", %80, %81, %82, %83"
#define TETRAD_ACC_22 TETRAD_ACC_21, "+f"(acc[84]), "+f"(acc[85]), "+f"(acc[86]), "+f"(acc[87])
#define TETRAD_NAMES_22 TETRAD_NAMES_21 ", %84, %85, %86, %87"
#define TETRAD_ACC_23 TETRAD_ACC_22, "+f"(acc[88]), "+f"(acc[89]), "+f"(acc[90]), "+f"(acc[91])
#define TETRAD_NAMES_23 TETRAD_NAMES_22 ", %88, %89, %90, %91"
#define TETRAD_ACC_24 TETRAD_ACC_23, "+f"(acc[92]), "+f"(acc[93]), "+f"(acc[94]), "+f"(acc[95])
#define TETRAD_NAMES_24 TETRAD_NAMES_23 ", %92, %93, %94, %95"
#define TETRAD_ACC_25 TETRAD_ACC_24, "+f"(acc[96]), "+f"(acc[97]), "+f"(acc[98]), "+f"(acc[99])
#define TETRAD_NAMES_25 TETRAD_NAMES_24 ", %96, %97, %98, %99"
#define TETRAD_ACC_26 TETRAD_ACC_25, "+f"(acc[100]), "+f"(acc[101]), "+f"(acc[102]), "+f"(acc[103])
#define TETRAD_NAMES_26 TETRAD_NAMES_25 ", %100, %101, %102, %103"
#define TETRAD_ACC_27 TETRAD_ACC_26, "+f"(acc[104]), "+f"(acc[105]), "+f"(acc[106]), "+f"(acc[107])
#define TETRAD_NAMES_27 TETRAD_NAMES_26 ", %104, %105, %106, %107"
#define TETRAD_ACC_28 TETRAD_ACC_27, "+f"(acc[108]), "+f"(acc[109]), "+f"(acc[110]), "+f"(acc[111])
#define TETRAD_NAMES_28 TETRAD_NAMES_27 ", %108, %109, %110, %111"
#define TETRAD_ACC_29 TETRAD_ACC_28, "+f"(acc[112]), "+f"(acc[113]), "+f"(acc[114]), "+f"(acc[115])
#define TETRAD_NAMES_29 TETRAD_NAMES_28 ", %112, %113, %114, %115"
#define TETRAD_ACC_30 TETRAD_ACC_29, "+f"(acc[116]), "+f"(acc[117]), "+f"(acc[118]), "+f"(acc[119])
#define TETRAD_NAMES_30 TETRAD_NAMES_29 ", %116, %117, %118, %119"
#define TETRAD_ACC_31 TETRAD_ACC_30, "+f"(acc[120]), "+f"(acc[121]), "+f"(acc[122]), "+f"(acc[123])
#define TETRAD_NAMES_31 TETRAD_NAMES_30 ", %120, %121, %122, %123"
#define TETRAD_ACC_32 TETRAD_ACC_31, "+f"(acc[124]), "+f"(acc[125]), "+f"(acc[126]), "+f"(acc[127])
#define TETRAD_NAMES_32 TETRAD_NAMES_31 ", %124, %125, %126, %127"

#define TETRAD_WGMMA_OF(Format, type, t, fours, a0, a1, a2, a3, b)                               \
  __device__ inline void Wgmma(Format, float (&acc)[t / 2], const uint32_t* a, uint32_t desc) {  \
    asm volatile(                                                                                \
        "wgmma.mma_async.sync.aligned.m64n" #t "k16.f32." type "." type " {"                     \
        TETRAD_NAMES_##fours "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b ", 1, 1, 1, 0;"           \
        : TETRAD_ACC_##fours                                                                     \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(WholeDescriptor(desc)));               \
  }
#define TETRAD_WGMMA(t, fours, a0, a1, a2, a3, b)                         \
  TETRAD_WGMMA_OF(Fp16Format, "f16", t, fours, a0, a1, a2, a3, b)         \
  TETRAD_WGMMA_OF(Bf16Format, "bf16", t, fours, a0, a1, a2, a3, b)

TETRAD_WGMMA(8, 1, "%4", "%5", "%6", "%7", "%8")
TETRAD_WGMMA(16, 2, "%8", "%9", "%10", "%11", "%12")
TETRAD_WGMMA(24, 3, "%12", "%13", "%14", "%15", "%16")
TETRAD_WGMMA(32, 4, "%16", "%17", "%18", "%19", "%20")
TETRAD_WGMMA(40, 5, "%20", "%21", "%22", "%23", "%24")
TETRAD_WGMMA(48, 6, "%24", "%25", "%26", "%27", "%28")
TETRAD_WGMMA(56, 7, "%28", "%29", "%30", "%31", "%32")
TETRAD_WGMMA(64, 8, "%32", "%33", "%34", "%35", "%36")
TETRAD_WGMMA(72, 9, "%36", "%37", "%38", "%39", "%40")
TETRAD_WGMMA(80, 10, "%40", "%41", "%42", "%43", "%44")
TETRAD_WGMMA(88, 11, "%44", "%45", "%46", "%47", "%48")
TETRAD_WGMMA(96, 12, "%48", "%49", "%50", "%51", "%52")
TETRAD_WGMMA(104, 13, "%52", "%53", "%54", "%55", "%56")
TETRAD_WGMMA(112, 14, "%56", "%57", "%58", "%59", "%60")
TETRAD_WGMMA(120, 15, "%60", "%61", "%62", "%63", "%64")
TETRAD_WGMMA(128, 16, "%64", "%65", "%66", "%67", "%68")
TETRAD_WGMMA(136, 17, "%68", "%69", "%70", "%71", "%72")
TETRAD_WGMMA(144, 18, "%72", "%73", "%74", "%75", "%76")
TETRAD_WGMMA(152, 19, "%76", "%77", "%78", "%79", "%80")
TETRAD_WGMMA(160, 20, "%80", "%81", "%82", "%83", "%84")
TETRAD_WGMMA(168, 21, "%84", "%85", "%86", "%87", "%88")
TETRAD_WGMMA(176, 22, "%88", "%89", "%90", "%91", "%92")
TETRAD_WGMMA(184, 23, "%92", "%93", "%94", "%95", "%96")
TETRAD_WGMMA(192, 24, "%96", "%97", "%98", "%99", "%100")
TETRAD_WGMMA(200, 25, "%100", "%101", "%102", "%103", "%104")
TETRAD_WGMMA(208, 26, "%104", "%105", "%106", "%107", "%108")
TETRAD_WGMMA(216, 27, "%108", "%109", "%110", "%111", "%112")
TETRAD_WGMMA(224, 28, "%112", "%113", "%114", "%115", "%116")
TETRAD_WGMMA(232, 29, "%116", "%117", "%118", "%119", "%120")
TETRAD_WGMMA(240, 30, "%120", "%121", "%122", "%123", "%124")
TETRAD_WGMMA(248, 31, "%124", "%125", "%126", "%127", "%128")
TETRAD_WGMMA(256, 32, "%128", "%129", "%130", "%131", "%132")

#undef TETRAD_WGMMA
#undef TETRAD_WGMMA_OF
// clang-format on

}  // namespace tetrad::sm90
