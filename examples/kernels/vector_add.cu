// sum = left + right. The arrays are of one extent, which the caller has compared.

#include "elements.cuh"

using interop::index_t;
using interop::view;

extern "C" __global__ void vector_add(view<const float, 1> left, view<const float, 1> right, view<float, 1> sum) {
    const index_t size = sum.size();
    index_t single = elements::number();
    if (elements::is_wide(left) && elements::is_wide(right) && elements::is_wide(sum)) {
        for (index_t at = elements::number(); at < size / 4; at += elements::count()) {
            const auto a = elements::load(left.data(), at);
            auto b = elements::load(right.data(), at);
            for (int item = 0; item < 4; ++item) b.items[item] += a.items[item];
            elements::store(sum.data(), at, b);
        }
        single += size / 4 * 4;
    }
    for (index_t at = single; at < size; at += elements::count()) sum(at) = left(at) + right(at);
}
