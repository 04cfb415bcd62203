// Sums an array in double. Each block writes the sum of its part to `parts[block]`, and a launch of `sum_f64` over
// `parts` with one block adds those. No atomics are used, so the same grid gives the same bits every time.

#include "elements.cuh"

#define DEFINE_SUM(name, T)                                                                           \
    extern "C" __global__ void name(elements::arrays<const T> array, interop::view<double, 1> parts) { \
        double sum = 0.0;                                                                             \
        array.for_each([&sum](T element) { sum += element; });                                        \
        sum = elements::sum_of_block(sum);                                                            \
        if (threadIdx.x == 0) parts(blockIdx.x) = sum;                                                \
    }

FOR_EACH_TYPE(DEFINE_SUM, sum)
// For the partial sums.
DEFINE_SUM(sum_f64, double)
