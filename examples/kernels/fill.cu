// Sets every element to a value.

#include "elements.cuh"

#define DEFINE_FILL(name, T)                                                                          \
    extern "C" __global__ void name(elements::arrays<T> array, T value) {                             \
        array.map([value] { return value; });                                                         \
    }

FOR_EACH_TYPE(DEFINE_FILL, fill)
