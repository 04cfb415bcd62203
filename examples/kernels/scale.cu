// Multiplies every element by a factor, in place. The product is a double and is converted to the element type.
// Integers are rounded towards zero and saturate at the limits of the type; NaN becomes 0.

#include "elements.cuh"

// A named namespace, because NVRTC would give members of an unnamed one different names in every run.
namespace scale {

__device__ inline float scaled(float element, double factor) { return static_cast<float>(element * factor); }

// `fmin` and `fmax` return the other operand if one is NaN.
__device__ inline unsigned char scaled(unsigned char element, double factor) {
    return static_cast<unsigned char>(fmin(fmax(element * factor, 0.0), 255.0));
}

}  // namespace scale

#define DEFINE_SCALE(name, T)                                                                         \
    extern "C" __global__ void name(elements::arrays<T> array, double factor) {                       \
        array.map_inplace([factor](T element) { return scale::scaled(element, factor); });            \
    }

FOR_EACH_TYPE(DEFINE_SCALE, scale)
