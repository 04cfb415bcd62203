// The sum of an array in double: each block leaves the sum of its part in `parts[block]`, and `sum_f64_1` over `parts` with
// one block adds those up. Nothing is added atomically, so the same grid gives the same bits each time.

#include "elements.cuh"

namespace {

using interop::index_t;
using interop::view;

constexpr int WARP = 32;

__device__ double sum_of_warp(double value) {
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value += __shfl_down_sync(0xFFFFFFFFu, value, distance);
    }
    return value;
}

// The sum over the block, in its first thread. Blocks have whole warps.
__device__ double sum_of_block(double value) {
    __shared__ double warps[WARP];
    value = sum_of_warp(value);
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
    __syncthreads();
    return threadIdx.x < WARP ? sum_of_warp(threadIdx.x < blockDim.x / WARP ? warps[threadIdx.x] : 0.0) : 0.0;
}

template <typename T, int N>
__device__ double sum_of_thread(const view<const T, N>& array) {
    const index_t size = array.size();
    index_t single = elements::number();
    double sum = 0.0;
    if (elements::is_wide(array)) {
        constexpr int COUNT = elements::Wide<T>::COUNT;
        for (index_t at = elements::number(); at < size / COUNT; at += elements::count()) {
            const auto wide = elements::load(array.data(), at);
            for (const T& item : wide.items) sum += item;
        }
        single += size / COUNT * COUNT;
    }
    for (index_t at = single; at < size; at += elements::count()) sum += array[at];
    return sum;
}

}  // namespace

#define DEFINE_SUM(name, T, N)                                                            \
    extern "C" __global__ void name(view<const T, N> array, view<double, 1> parts) {      \
        const double sum = sum_of_block(sum_of_thread<T, N>(array));                      \
        if (threadIdx.x == 0) parts(blockIdx.x) = sum;                                    \
    }

FOR_EACH_TYPE_AND_RANK(DEFINE_SUM, sum)
