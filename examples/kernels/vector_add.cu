// Computes sum = left + right for arrays of any rank and any strides.

#include "elements.cuh"

extern "C" __global__ void vector_add(elements::arrays<float, const float, const float> arrays) {
    arrays.map([](float left, float right) { return left + right; });
}
