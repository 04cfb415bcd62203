// Kernels for arrays whose element type is known only at run time, as Python's are. There is one kernel for each size
// and kind of elements; `launch.rs` builds its name. `variant` distinguishes signed integers (1) from unsigned ones
// (0), and bfloat16 (1) from float16 (0).

#include "elements.cuh"

// A named namespace, because NVRTC would give members of an unnamed one different names in every run.
namespace dynamic {

using interop::index_t;
using word_t = unsigned long long;

// The same value as the number of axes of `Arrays` in `launch.rs`.
template <typename... T>
using arrays = interop::elementwise<32, T...>;

// The bits of a 16-bit float, because C++ has no arithmetic for these types.
struct Half { unsigned short bits; };

// Returns the sign bit of a signed type, and 0 for an unsigned one.
template <typename T>
__device__ word_t sign_bit(bool is_signed) {
    return static_cast<word_t>(is_signed) << (8 * sizeof(T) - 1);
}

__device__ inline double number(Half half, bool is_bfloat) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits));
    return is_bfloat ? __uint_as_float(static_cast<unsigned>(half.bits) << 16) : value;
}
__device__ inline double number(float value, bool) { return value; }
__device__ inline double number(double value, bool) { return value; }
// Branch-free, because the compiler would duplicate every loop for a condition. The upper half of a 64-bit word is
// exact when multiplied by 2^32.
template <typename T>
__device__ double number(T value, bool is_signed) {
    constexpr int SHIFT = sizeof(T) == 8 ? 32 : 0;
    const auto upper = static_cast<index_t>(value >> SHIFT);
    const auto sign = static_cast<index_t>(sign_bit<T>(is_signed) >> SHIFT);
    const double number = static_cast<double>(upper - 2 * (upper & sign));
    if constexpr (SHIFT == 0) return number;
    else return number * 4294967296.0 + static_cast<unsigned>(value);
}

// A factor. If it is an integer whose products with integers of up to 16 bits fit 32 bits, also as an integer.
struct Factor {
    double value;
    int whole;
    bool is_small;
    __device__ Factor(double factor)
        : value(factor), whole(static_cast<int>(factor)), is_small(factor == whole && abs(whole) <= 0x7FFF) {}
};

// For integers of up to 32 bits, the product with an integer is exact in double if it fits the type.
template <typename T>
__device__ T scaled(T element, Factor factor, bool is_signed) {
    if constexpr (sizeof(T) < 4) {
        // Here arithmetic in double would take longer than the memory accesses.
        if (factor.is_small) {
            const int sign = static_cast<int>(sign_bit<T>(is_signed)), number = element;
            const int product = (number - 2 * (number & sign)) * factor.whole;
            return static_cast<T>(min(max(product, -sign), static_cast<T>(-1) - sign));
        }
    }
    const double size = static_cast<double>(T(-1)), least = -static_cast<double>(sign_bit<T>(is_signed)), most = size + least;
    const double product = number(element, is_signed) * factor.value;
    // `fmin` and `fmax` return the other operand if one is NaN.
    const double within = fmin(fmax(product, least), most);
    return product == product ? static_cast<T>(static_cast<index_t>(within)) : T(0);
}
__device__ inline float scaled(float element, Factor factor, bool) { return static_cast<float>(element * factor.value); }
__device__ inline double scaled(double element, Factor factor, bool) { return element * factor.value; }

__device__ inline Half scaled(Half element, Factor factor, bool is_bfloat) {
    const double value = number(element, is_bfloat) * factor.value;
    Half half;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(half.bits) : "d"(value));
    // The value is rounded to odd as a float first. This keeps the information that the second rounding, to nearest,
    // needs.
    unsigned bits = __float_as_uint(__double2float_rz(value));
    if (static_cast<double>(__uint_as_float(bits)) != value) bits |= 1;
    const unsigned bfloat = value == value ? (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 : 0x7FC0;
    return is_bfloat ? Half{static_cast<unsigned short>(bfloat)} : half;
}

// Exact if the factor is an integer, else rounded towards zero. Saturates at the limits of the type. Not inlined,
// because the code is long.
__device__ __noinline__ word_t scaled_word(word_t element, double factor, bool is_signed) {
    const bool below = is_signed && static_cast<index_t>(element) < 0;
    const bool negative = below != (factor < 0);
    const word_t limit = !is_signed ? negative ? 0 : word_t(-1) : (word_t(-1) >> 1) + negative;
    const word_t size = below ? word_t(0) - element : element;
    word_t product;
    if (factor == trunc(factor) && fabs(factor) <= 9007199254740992.0) {
        const word_t times = static_cast<word_t>(fabs(factor));
        product = __umul64hi(size, times) ? word_t(-1) : size * times;
    } else {
        const double real = fabs(number(element, is_signed) * factor);
        // NaN becomes 0. No type can hold values from 2^64 on.
        product = real < 18446744073709551616.0 ? static_cast<word_t>(real) : real == real ? word_t(-1) : 0;
    }
    if (product > limit) product = limit;
    return negative ? word_t(0) - product : product;
}
__device__ inline word_t scaled(word_t element, Factor factor, bool is_signed) {
    return scaled_word(element, factor.value, is_signed);
}

}  // namespace dynamic

// `scale` writes every element of the second array, multiplied by a factor, to its place in the first, which may be the
// same array. `sum` adds the elements in double, and block `i` writes its part to `parts[i]`.
#define DEFINE(name, T)                                                                                   \
    extern "C" __global__ void scale_##name(dynamic::arrays<T, const T> arrays, double factor, int variant) { \
        const dynamic::Factor times(factor);                                                              \
        arrays.map([=](T element) { return dynamic::scaled(element, times, variant != 0); });             \
    }                                                                                                     \
    extern "C" __global__ void sum_##name(dynamic::arrays<const T> array, double* parts, int variant) {   \
        double sum = 0.0;                                                                                 \
        array.for_each([&](T element) { sum += dynamic::number(element, variant != 0); });                \
        sum = elements::sum_of_block(sum);                                                                \
        if (threadIdx.x == 0) parts[blockIdx.x] = sum;                                                    \
    }

DEFINE(int8, unsigned char)
DEFINE(int16, unsigned short)
DEFINE(int32, unsigned)
DEFINE(int64, dynamic::word_t)
DEFINE(float16, dynamic::Half)
DEFINE(float32, float)
DEFINE(float64, double)

// Sets every element to a value, given by its bits.
#define DEFINE_FILL(name, T)                                                                          \
    extern "C" __global__ void name(dynamic::arrays<T> array, T value) {                               \
        array.map([value] { return value; });                                                         \
    }

DEFINE_FILL(fill_8, unsigned char)
DEFINE_FILL(fill_16, unsigned short)
DEFINE_FILL(fill_32, unsigned)
DEFINE_FILL(fill_64, uint2)
DEFINE_FILL(fill_128, uint4)
