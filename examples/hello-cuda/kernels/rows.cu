// Kernels on rows. `interop::view<const float, 1>` has the layout of Rust's `KernelView<f32, 1>`, and
// `interop::view<float, 1>` that of `KernelViewMut<f32, 1>`.

#include "interop.cuh"

// Calls `work` with each index of a row. The threads of the grid share the indices.
template <typename Work>
__device__ void for_each_index(long long size, Work work) {
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long at = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; at < size; at += step) work(at);
}

extern "C" __global__ void double_elements(interop::view<const float, 1> from, interop::view<float, 1> to) {
    for_each_index(to.size(), [=](long long at) { to(at) = 2.0f * from(at); });
}

extern "C" __global__ void add_elements(interop::view<const float, 1> from, interop::view<float, 1> to) {
    for_each_index(to.size(), [=](long long at) { to(at) += from(at); });
}
