// Shared by the kernels in C++: the assignment of elements to threads, and the sum over a block.

#pragma once
#include "interop.cuh"

namespace elements {

using interop::index_t;

// As in `Elementwise` of Rust, if it names no other number.
constexpr int AXES = 4;
template <typename... T>
using arrays = interop::elementwise<AXES, T...>;

// The index of this thread in the grid, and the number of threads. Each thread processes the elements number, number +
// count, and so on. So any grid size is correct, and neighbouring threads access neighbouring elements.
__device__ inline index_t number() { return blockIdx.x * static_cast<index_t>(blockDim.x) + threadIdx.x; }
__device__ inline index_t count() { return gridDim.x * static_cast<index_t>(blockDim.x); }

constexpr int WARP = 32;

__device__ inline double sum_of_warp(double value) {
#pragma unroll 1
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value += __shfl_down_sync(0xFFFFFFFFu, value, distance);
    }
    return value;
}

// Returns the sum over the block in its first thread. The block size is a multiple of the warp size. Not inlined,
// because it runs only once per thread.
__device__ __noinline__ inline double sum_of_block(double value) {
    __shared__ double warps[WARP];
    value = sum_of_warp(value);
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
    __syncthreads();
    return threadIdx.x < WARP ? sum_of_warp(threadIdx.x < blockDim.x / WARP ? warps[threadIdx.x] : 0.0) : 0.0;
}

}  // namespace elements
