// Every element becomes a value.

#include "elements.cuh"

#define DEFINE_FILL(name, T, N)                                                           \
    extern "C" __global__ void name(interop::view<T, N> array, T value) {                 \
        elements::fill(array, value);                                                     \
    }

FOR_EACH_TYPE_AND_RANK(DEFINE_FILL, fill)
