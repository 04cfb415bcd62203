// The kernels of `examples/kernels/src/kernels.rs` once more, in C++, to compare their rates. Each has the name, the parameters and
// the algorithm of the one in Rust.

#include "elements.cuh"

using elements::arrays;
using interop::index_t;
using interop::view;

extern "C" __global__ void vector_add(arrays<float, const float, const float> all) {
    all.map([](float left, float right) { return left + right; });
}

extern "C" __global__ void scale_f32(arrays<float> array, double factor) {
    array.map_inplace([factor](float element) { return static_cast<float>(element * factor); });
}

extern "C" __global__ void fill_f32(arrays<float> array, float value) {
    array.map([value] { return value; });
}

extern "C" __global__ void sum_f32(arrays<const float> array, view<double, 1> parts) {
    double sum = 0.0;
    array.for_each([&sum](float element) { sum += element; });
    sum = elements::sum_of_block(sum);
    if (threadIdx.x == 0) parts(blockIdx.x) = sum;
}

extern "C" __global__ void histogram_f32(arrays<const float> array, float first, float bins_per_unit,
                                         view<unsigned, 1> counts) {
    const index_t last = counts.size() - 1;
    if (last < 0) return;
    array.for_each([&](float element) {
        const index_t bin = __float2uint_rz((element - first) * bins_per_unit);
        atomicAdd(&counts(min(bin, last)), 1u);
    });
}

extern "C" __global__ void scale_row(view<float, 1> row, float factor) {
    for (index_t at = elements::number(); at < row.size(); at += elements::count()) row(at) *= factor;
}

extern "C" __global__ void scale_packs(view<float, 1> row, float factor) {
    const index_t packs = (row.size() + 3) / 4;
    for (index_t pack = elements::number(); pack < packs; pack += elements::count()) {
        float* first = &row(4 * pack);
        const index_t count = min(row.size() - 4 * pack, index_t{4});
        if (row.stride(0) == 1 && count == 4 && reinterpret_cast<unsigned long long>(first) % 16 == 0) {
            float4 items = *reinterpret_cast<float4*>(first);
            items.x *= factor;
            items.y *= factor;
            items.z *= factor;
            items.w *= factor;
            *reinterpret_cast<float4*>(first) = items;
        } else {
            for (index_t at = 0; at < count; ++at) row(4 * pack + at) *= factor;
        }
    }
}

__device__ index_t nearest(index_t at, index_t extent) { return max(min(at, extent - 1), index_t{0}); }

__device__ float nearest(const view<const float, 3>& from, index_t y, index_t x, index_t channel) {
    return from(nearest(y, from.shape(0)), nearest(x, from.shape(1)), channel);
}

extern "C" __global__ void blur_f32(view<const float, 3> from, view<float, 3> to) {
    constexpr index_t ROWS = 16;
    const index_t height = to.shape(0), width = to.shape(1), channels = to.shape(2);
    const index_t tiles = (height + ROWS - 1) / ROWS * width * channels;
    for (index_t tile = elements::number(); tile < tiles; tile += elements::count()) {
        const index_t pixel = interop::detail::divide(tile, channels), channel = tile - pixel * channels;
        const index_t strip = interop::detail::divide(pixel, width), x = pixel - strip * width;
        const index_t top = strip * ROWS, bottom = min(top + ROWS, height);
        const auto row = [&](index_t y) {
            return nearest(from, y, x - 1, channel) + nearest(from, y, x, channel) + nearest(from, y, x + 1, channel);
        };
        float above = row(top - 1), here = row(top);
        for (index_t y = top; y < bottom; ++y) {
            const float below = row(y + 1);
            to(y, x, channel) = (above + here + below) * (1.0f / 9.0f);
            above = here;
            here = below;
        }
    }
}

extern "C" __global__ void blur_pixels(view<const float, 3> from, view<float, 3> to) {
    for (index_t number = elements::number(); number < to.size(); number += elements::count()) {
        index_t at[3];
        to.indices_of(number, at);
        float sum = 0.0f;
        for (int dy = -1; dy < 2; ++dy) {
            for (int dx = -1; dx < 2; ++dx) sum += nearest(from, at[0] + dy, at[1] + dx, at[2]);
        }
        to(at[0], at[1], at[2]) = sum * (1.0f / 9.0f);
    }
}
