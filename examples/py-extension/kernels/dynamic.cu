// Work on arrays whose element type and rank are known at run time only, as Python's are: one kernel for all of them. Where
// the type is known a kernel is shorter and faster: see `examples/kernels`.

typedef long long index_t;
typedef unsigned long long word_t;

// An array as `launch.rs` passes it, by value. Not in the namespace below: NVRTC would give what is in there
// another name in every run.
struct Dynamic {
    word_t address;
    index_t size;
    unsigned ndim;
    // The two numbers that DLPack calls `code` and `bits`.
    int code, bits;
    index_t shape[64], strides[64];
};
static_assert(sizeof(Dynamic) == 1056, "launch.rs says the same");

namespace {

enum Code { INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, BOOL = 6 };

// Types of 16 bits, which C++ has no arithmetic for.
struct Half { unsigned short bits; };
struct BFloat { unsigned short bits; };

__device__ double number(Half half) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits));
    return value;
}

__device__ double number(BFloat bfloat) { return __uint_as_float(static_cast<unsigned>(bfloat.bits) << 16); }

template <typename T>
__device__ double number(T value) {
    return static_cast<double>(value);
}

__device__ void assign(float& to, double value) { to = static_cast<float>(value); }
__device__ void assign(double& to, double value) { to = value; }
__device__ void assign(Half& to, double value) { asm("cvt.rn.f16.f64 %0, %1;" : "=h"(to.bits) : "d"(value)); }

// By way of a float that is rounded to odd, which keeps what the second rounding, to nearest, has to know.
__device__ void assign(BFloat& to, double value) {
    unsigned bits = __float_as_uint(__double2float_rz(value));
    if (value != value) {
        to.bits = 0x7FC0;
        return;
    }
    if (static_cast<double>(__uint_as_float(bits)) != value) bits |= 1;
    to.bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

// Integers: exact where the factor is an integer, else towards zero; the nearest limit of the type where it does not fit.
template <typename T>
__device__ void scale(T& element, double factor) {
    constexpr bool SIGNED = T(-1) < T(0);
    constexpr word_t MOST = SIGNED ? (word_t(1) << (8 * sizeof(T) - 1)) - 1 : word_t(-1) >> (64 - 8 * sizeof(T));
    const bool below = SIGNED && static_cast<index_t>(element) < 0;
    const bool negative = below != (factor < 0);
    const word_t limit = !negative ? MOST : SIGNED ? MOST + 1 : 0;
    const word_t size = below ? word_t(0) - static_cast<word_t>(element) : static_cast<word_t>(element);
    word_t product;
    if (factor == trunc(factor) && fabs(factor) <= 9007199254740992.0) {
        const word_t times = static_cast<word_t>(fabs(factor));
        product = __umul64hi(size, times) ? word_t(-1) : size * times;
    } else {
        const double real = fabs(static_cast<double>(element) * factor);
        // Not a number is 0; from 2^64 on no type has room.
        product = real < 18446744073709551616.0 ? static_cast<word_t>(real) : real == real ? word_t(-1) : 0;
    }
    if (product > limit) product = limit;
    element = static_cast<T>(negative ? word_t(0) - product : product);
}

template <typename T>
__device__ void scale_real(T& element, double factor) {
    assign(element, number(element) * factor);
}
__device__ void scale(float& element, double factor) { scale_real(element, factor); }
__device__ void scale(double& element, double factor) { scale_real(element, factor); }
__device__ void scale(Half& element, double factor) { scale_real(element, factor); }
__device__ void scale(BFloat& element, double factor) { scale_real(element, factor); }

// Calls `see` with every element of type T that is this thread's.
template <typename T, typename See>
__device__ void each_of(const Dynamic& array, See see) {
    const index_t step = gridDim.x * static_cast<index_t>(blockDim.x);
    for (index_t at = blockIdx.x * static_cast<index_t>(blockDim.x) + threadIdx.x; at < array.size; at += step) {
        index_t rest = at, offset = 0;
        // Not unrolled: there are thirteen copies of this loop.
#pragma unroll 1
        for (int axis = static_cast<int>(array.ndim) - 1; axis >= 0; axis--) {
            offset += rest % array.shape[axis] * array.strides[axis];
            rest /= array.shape[axis];
        }
        see(reinterpret_cast<T*>(array.address)[offset]);
    }
}

template <typename See>
__device__ void each(const Dynamic& array, See see) {
    switch (array.code * 256 + array.bits) {
        case INT * 256 + 8: return each_of<signed char>(array, see);
        case INT * 256 + 16: return each_of<short>(array, see);
        case INT * 256 + 32: return each_of<int>(array, see);
        case INT * 256 + 64: return each_of<index_t>(array, see);
        case BOOL * 256 + 8:
        case UINT * 256 + 8: return each_of<unsigned char>(array, see);
        case UINT * 256 + 16: return each_of<unsigned short>(array, see);
        case UINT * 256 + 32: return each_of<unsigned>(array, see);
        case UINT * 256 + 64: return each_of<word_t>(array, see);
        case FLOAT * 256 + 16: return each_of<Half>(array, see);
        case FLOAT * 256 + 32: return each_of<float>(array, see);
        case FLOAT * 256 + 64: return each_of<double>(array, see);
        case BFLOAT * 256 + 16: return each_of<BFloat>(array, see);
        // `launch.rs` lets no other type through.
        default: return;
    }
}

struct Scale {
    double factor;
    template <typename T>
    __device__ void operator()(T& element) const {
        scale(element, factor);
    }
};

struct Sum {
    double& sum;
    template <typename T>
    __device__ void operator()(const T& element) const {
        sum += number(element);
    }
};

}  // namespace

// Every element times a factor, in place.
extern "C" __global__ void dynamic_scale(Dynamic array, double factor) { each(array, Scale{factor}); }

// The sum of the elements in double: block `i` leaves its part in `parts[i]`. Blocks have 256 threads.
extern "C" __global__ void dynamic_sum(Dynamic array, double* parts) {
    __shared__ double sums[256];
    double sum = 0.0;
    each(array, Sum{sum});
    sums[threadIdx.x] = sum;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) parts[blockIdx.x] = sums[0];
}
