// Every element times a factor, in place. The product is a double, rounded to the type: integers towards zero, and to the
// nearest limit of the type where they do not fit; not a number becomes 0.

#include "elements.cuh"

namespace {

template <typename T>
struct Limits;
template <>
struct Limits<int> {
    static constexpr double LEAST = -2147483648.0, MOST = 2147483647.0;
};
template <>
struct Limits<unsigned char> {
    static constexpr double LEAST = 0.0, MOST = 255.0;
};

__device__ void assign(float& to, double value) { to = static_cast<float>(value); }
__device__ void assign(double& to, double value) { to = value; }

template <typename T>
__device__ void assign(T& to, double value) {
    // `fmin` and `fmax` prefer the number to what is none.
    const double within = fmin(fmax(value, Limits<T>::LEAST), Limits<T>::MOST);
    to = value == value ? static_cast<T>(within) : T(0);
}

}  // namespace

#define DEFINE_SCALE(name, T, N)                                                          \
    extern "C" __global__ void name(interop::view<T, N> array, double factor) {           \
        elements::apply(array, [factor](T element) {                                      \
            assign(element, element * factor);                                            \
            return element;                                                               \
        });                                                                               \
    }

FOR_EACH_TYPE_AND_RANK(DEFINE_SCALE, scale)
