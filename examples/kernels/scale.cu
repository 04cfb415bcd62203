// Every element times a factor, in place. The product is a double, rounded to the type: integers towards zero, and to the
// nearest limit of the type where they do not fit; not a number becomes 0.

#include "elements.cuh"

// Not in a namespace without a name: NVRTC would give what is in there another name in every run.
namespace scale {

__device__ inline float scaled(float element, double factor) { return static_cast<float>(element * factor); }

// `fmin` and `fmax` prefer the number to what is none.
__device__ inline unsigned char scaled(unsigned char element, double factor) {
    return static_cast<unsigned char>(fmin(fmax(element * factor, 0.0), 255.0));
}

}  // namespace scale

#define DEFINE_SCALE(name, T)                                                                         \
    extern "C" __global__ void name(elements::arrays<T> array, double factor) {                       \
        array.map_inplace([factor](T element) { return scale::scaled(element, factor); });            \
    }

FOR_EACH_TYPE(DEFINE_SCALE, scale)
