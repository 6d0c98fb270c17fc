// CUDA for the host's compiler: what the kernels use of the language, as plain C++.
//
// The threads of a launch run one after the other, block by block. That is enough for kernels whose threads never wait
// for each other.
#pragma once

#include <cstring>

#define __global__
#define __device__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))

struct Dim {
    unsigned x, y, z;
};

static thread_local Dim blockIdx, blockDim, gridDim, threadIdx;

template <class To, class From> static inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "only the type changes");
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
}

static inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
static inline unsigned __float_as_uint(float number) { return same_bits<unsigned>(number); }
static inline double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
static inline long long __double_as_longlong(double number) { return same_bits<long long>(number); }

// How many addresses were used that the type at them may not have: a GPU would end the launch there.
extern "C" unsigned long paceline_misaligned_taken();

template <class Kernel> static inline unsigned long launched(unsigned blocks, unsigned threads, Kernel kernel) {
    gridDim = {blocks, 1, 1};
    blockDim = {threads, 1, 1};
    for (unsigned block = 0; block < blocks; block++)
        for (unsigned thread = 0; thread < threads; thread++) {
            blockIdx = {block, 0, 0};
            threadIdx = {thread, 0, 0};
            kernel();
        }
    return paceline_misaligned_taken();
}
