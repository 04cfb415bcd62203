// Arrays as kernels take them: the C++ side of KernelView and KernelViewMut of the Rust crate interop-core.
//
// C++17; includes nothing, so that NVRTC takes it as a header in memory and a C++ compiler of the host as it is.
//
//     extern "C" __global__ void brighten(interop::view<const float, 3> from, interop::view<float, 3> to, float by) {
//         long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
//         if (at < from.size()) to[at] = from[at] + by;
//     }
//
// `interop::view<const T, N>` is KernelView<T, N>, `interop::view<T, N>` is KernelViewMut<T, N>. Indices are not checked.

#ifndef INTEROP_CUH
#define INTEROP_CUH

#if defined(__CUDACC__)
#define INTEROP_FN __host__ __device__ inline
#else
#define INTEROP_FN inline
#endif

namespace interop {

// Extents, strides and indices, as the Rust side has them. Not int64_t, which is `long` on some hosts and needs a header.
using index_t = long long;
static_assert(sizeof(index_t) == 8, "the Rust side has i64");

namespace detail {

// The members, in the order of the Rust struct. A class of its own, because there are no arrays of length 0 in C++.
template <typename T, int N>
struct members {
    T* data_;
    index_t shape_[N];
    index_t strides_[N];

    INTEROP_FN index_t shape(int axis) const { return shape_[axis]; }
    INTEROP_FN index_t stride(int axis) const { return strides_[axis]; }
};

template <typename T>
struct members<T, 0> {
    T* data_;

    INTEROP_FN index_t shape(int) const { return 1; }
    INTEROP_FN index_t stride(int) const { return 0; }
};

// The quotient of two numbers that are not negative, of which few have more than 32 bits: a device divides those many
// times faster.
INTEROP_FN index_t divide(index_t number, index_t by) {
    if (((number | by) >> 32) == 0) return static_cast<unsigned>(number) / static_cast<unsigned>(by);
    return number / by;
}

}  // namespace detail

// An array of elements T with N axes: a pointer, N extents, N strides in elements. A value; it owns nothing.
template <typename T, int N>
struct view : detail::members<T, N> {
    static_assert(N >= 0, "a rank is not negative");
    using detail::members<T, N>::data_;
    using detail::members<T, N>::shape;
    using detail::members<T, N>::stride;

    // The address of element [0, ..., 0]; null for an array without elements. Others lie below it where strides are
    // negative.
    INTEROP_FN T* data() const { return data_; }

    // The number of elements. Beside an extent of 0 the product of the others may be any, and without a sign it wraps.
    INTEROP_FN index_t size() const {
        unsigned long long size = 1;
        for (int axis = 0; axis < N; ++axis) size *= static_cast<unsigned long long>(shape(axis));
        return static_cast<index_t>(size);
    }

    // The element at these indices.
    template <typename... Index>
    INTEROP_FN T& operator()(Index... index) const {
        static_assert(sizeof...(Index) == N, "one index for each axis");
        return data_[offset(index...)];
    }

    // The element of this number, counted in row-major order whatever the strides are.
    INTEROP_FN T& operator[](index_t number) const { return data_[offset_of(number)]; }

    // Where the element at these indices lies, in elements from element [0, ..., 0].
    template <typename... Index>
    INTEROP_FN index_t offset(Index... index) const {
        static_assert(sizeof...(Index) == N, "one index for each axis");
        int axis = 0;
        index_t sum = 0;
        // Braces, unlike a call's arguments, are evaluated from left to right. The first 0 is for N = 0.
        index_t order[] = {0, (sum += static_cast<index_t>(index) * stride(axis++))...};
        (void)order;
        (void)axis;
        return sum;
    }

    // Where the element of this number lies, in elements from element [0, ..., 0].
    INTEROP_FN index_t offset_of(index_t number) const {
        index_t sum = 0;
        for (int axis = N - 1; axis > 0; --axis) {
            index_t rest = detail::divide(number, shape(axis));
            sum += (number - rest * shape(axis)) * stride(axis);
            number = rest;
        }
        return N > 0 ? sum + number * stride(0) : sum;
    }

    // The indices of the element of this number.
    INTEROP_FN void indices_of(index_t number, index_t (&indices)[N > 0 ? N : 1]) const {
        for (int axis = N - 1; axis > 0; --axis) {
            index_t rest = detail::divide(number, shape(axis));
            indices[axis] = number - rest * shape(axis);
            number = rest;
        }
        indices[0] = number;
    }

    // Whether the elements lie without gaps in row-major order, so that element `number` is data()[number]. Axes of
    // extent 1 put no condition on their stride; an array without elements is contiguous.
    INTEROP_FN bool is_contiguous() const {
        unsigned long long expected = 1;
        bool compact = true;
        for (int axis = N - 1; axis >= 0; --axis) {
            if (shape(axis) == 0) return true;
            if (shape(axis) != 1 && static_cast<unsigned long long>(stride(axis)) != expected) compact = false;
            expected *= static_cast<unsigned long long>(shape(axis));
        }
        return compact;
    }

    // The same array for reading.
    INTEROP_FN view<const T, N> as_const() const {
        view<const T, N> other{};
        other.data_ = data_;
        if constexpr (N > 0) {
            for (int axis = 0; axis < N; ++axis) {
                other.shape_[axis] = shape(axis);
                other.strides_[axis] = stride(axis);
            }
        }
        return other;
    }
};

namespace detail {

// A kernel's argument is copied as bytes, which the Rust side has filled.
template <typename T, int N>
constexpr bool is_plain = sizeof(view<T, N>) == 8 + 16 * N && alignof(view<T, N>) == 8 &&
                          __is_standard_layout(view<T, N>) && __is_trivially_copyable(view<T, N>);

static_assert(is_plain<char, 0> && is_plain<const float, 1> && is_plain<double, 4> && is_plain<int, 64>,
              "the layout is that of the Rust struct");

}  // namespace detail
}  // namespace interop

#undef INTEROP_FN
#endif  // INTEROP_CUH
