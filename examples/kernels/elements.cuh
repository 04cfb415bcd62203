// What the kernels over all elements of an array share: who does which element, wide loads, and the table of kernels.

#pragma once
#include "interop.cuh"

namespace elements {

using interop::index_t;
using interop::view;

// The number of this thread in the grid, and how many there are. Each does the elements number, number + count, and so on,
// so any grid is right, and neighbours touch neighbouring elements.
__device__ inline index_t number() { return blockIdx.x * static_cast<index_t>(blockDim.x) + threadIdx.x; }
__device__ inline index_t count() { return gridDim.x * static_cast<index_t>(blockDim.x); }

// As many elements as one thread loads at once: 16 bytes, the widest load there is.
template <typename T>
struct alignas(16) Wide {
    static constexpr int COUNT = 16 / sizeof(T);
    T items[COUNT];
};

// Whether the elements lie in row-major order without gaps, and wide loads reach them.
template <typename T, int N>
__device__ bool is_wide(const view<T, N>& array) {
    return array.is_contiguous() && reinterpret_cast<unsigned long long>(array.data()) % 16 == 0;
}

// The elements from the 16 * `at`th byte on. Through uint4, since structs of small items are loaded one by one.
template <typename T>
__device__ Wide<T> load(const T* elements, index_t at) {
    const uint4 bits = reinterpret_cast<const uint4*>(elements)[at];
    Wide<T> wide;
    memcpy(&wide, &bits, 16);
    return wide;
}

template <typename T>
__device__ void store(T* elements, index_t at, const Wide<T>& wide) {
    uint4 bits;
    memcpy(&bits, &wide, 16);
    reinterpret_cast<uint4*>(elements)[at] = bits;
}

// Replaces every element by `change` of it.
template <typename T, int N, typename Change>
__device__ void apply(const view<T, N>& array, Change change) {
    const index_t size = array.size();
    index_t single = number();
    if (is_wide(array)) {
        constexpr int COUNT = Wide<T>::COUNT;
        for (index_t at = number(); at < size / COUNT; at += count()) {
            Wide<T> wide = load(array.data(), at);
            for (T& item : wide.items) item = change(item);
            store(array.data(), at, wide);
        }
        // What does not fill the last 16 bytes.
        single += size / COUNT * COUNT;
    }
    for (index_t at = single; at < size; at += count()) {
        T& element = array[at];
        element = change(element);
    }
}

// Every element becomes `value`.
template <typename T, int N>
__device__ void fill(const view<T, N>& array, T value) {
    const index_t size = array.size();
    index_t single = number();
    if (is_wide(array)) {
        constexpr int COUNT = Wide<T>::COUNT;
        Wide<T> wide;
        for (T& item : wide.items) item = value;
        for (index_t at = number(); at < size / COUNT; at += count()) store(array.data(), at, wide);
        single += size / COUNT * COUNT;
    }
    for (index_t at = single; at < size; at += count()) array[at] = value;
}

}  // namespace elements

// A kernel for each element type and each rank from 1 to 4, which `DEFINE` defines by name, type and rank.
#define FOR_EACH_RANK(DEFINE, name, T)                                                                \
    DEFINE(name##_1, T, 1) DEFINE(name##_2, T, 2) DEFINE(name##_3, T, 3) DEFINE(name##_4, T, 4)
#define FOR_EACH_TYPE_AND_RANK(DEFINE, name)                                                          \
    FOR_EACH_RANK(DEFINE, name##_f32, float)                                                          \
    FOR_EACH_RANK(DEFINE, name##_f64, double)                                                         \
    FOR_EACH_RANK(DEFINE, name##_i32, int)                                                            \
    FOR_EACH_RANK(DEFINE, name##_u8, unsigned char)
