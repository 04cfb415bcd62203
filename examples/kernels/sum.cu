// The sum of an array in double: each block leaves the sum of its part in `parts[block]`, and `sum_f64` over `parts` with
// one block adds those up. Nothing is added atomically, so the same grid gives the same bits each time.

#include "elements.cuh"

#define DEFINE_SUM(name, T)                                                                           \
    extern "C" __global__ void name(elements::arrays<const T> array, interop::view<double, 1> parts) { \
        double sum = 0.0;                                                                             \
        array.for_each([&sum](T element) { sum += element; });                                        \
        sum = elements::sum_of_block(sum);                                                            \
        if (threadIdx.x == 0) parts(blockIdx.x) = sum;                                                \
    }

FOR_EACH_TYPE(DEFINE_SUM, sum)
// For the parts.
DEFINE_SUM(sum_f64, double)
