// Arrays as kernel arguments: the C++ side of KernelView and KernelViewMut of the Rust crate interop-core.
//
// Needs C++17 and includes nothing. So NVRTC accepts it as a header in memory, and a C++ compiler of the host as it is.
//
//     extern "C" __global__ void brighten(interop::view<const float, 3> from, interop::view<float, 3> to, float by) {
//         long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
//         for (long long at = first; at < from.size(); at += (long long)gridDim.x * blockDim.x)
//             to[at] = from[at] + by;
//     }
//
// `interop::view<const T, N>` is KernelView<T, N>, and `interop::view<T, N>` is KernelViewMut<T, N>. Indices are not
// checked.
//
// A kernel for arrays of any rank and any strides takes all of them as one argument, the `KernelArrays<K, N>` of Rust:
//
//     extern "C" __global__ void add(interop::elementwise<8, float, const float, const float> arrays) {
//         arrays.map([](float left, float right) { return left + right; });
//     }

#ifndef INTEROP_CUH
#define INTEROP_CUH

#if defined(__CUDACC__)
#define INTEROP_FN __host__ __device__ inline
// Unrolls short loops over registers; keeps loops that would only make the code longer.
#define INTEROP_UNROLL _Pragma("unroll")
#define INTEROP_KEEP_LOOP _Pragma("unroll 1")
#else
#define INTEROP_FN inline
#define INTEROP_UNROLL
#define INTEROP_KEEP_LOOP
#endif

namespace interop {

// The type of extents, strides and indices, as on the Rust side. Not int64_t, because that is `long` on some hosts and
// needs a header.
using index_t = long long;
static_assert(sizeof(index_t) == 8, "the Rust side has i64");

namespace detail {

// The members, in the order of the Rust struct. They are a class of their own, because C++ has no arrays of length 0.
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

// Returns the quotient of two numbers that are not negative. Few of them have more than 32 bits, and a device divides
// numbers of 32 bits many times faster.
INTEROP_FN index_t divide(index_t number, index_t by) {
    if (((number | by) >> 32) == 0) return static_cast<unsigned>(number) / static_cast<unsigned>(by);
    return number / by;
}

}  // namespace detail

// An array of elements T with N axes: a pointer, N extents, N strides in elements. It is a value and owns nothing.
template <typename T, int N>
struct view : detail::members<T, N> {
    static_assert(N >= 0, "a rank is not negative");
    using detail::members<T, N>::data_;
    using detail::members<T, N>::shape;
    using detail::members<T, N>::stride;

    // Returns the address of element [0, ..., 0], or null for an array without elements. With negative strides, other
    // elements have lower addresses.
    INTEROP_FN T* data() const { return data_; }

    // Returns the number of elements. If one extent is 0, the product of the others may be any number. It is computed
    // without a sign, so that it wraps.
    INTEROP_FN index_t size() const {
        unsigned long long size = 1;
        for (int axis = 0; axis < N; ++axis) size *= static_cast<unsigned long long>(shape(axis));
        return static_cast<index_t>(size);
    }

    // Returns the element at these indices.
    template <typename... Index>
    INTEROP_FN T& operator()(Index... index) const {
        static_assert(sizeof...(Index) == N, "one index for each axis");
        return data_[offset(index...)];
    }

    // Returns the element with this number, counted in row-major order whatever the strides are.
    INTEROP_FN T& operator[](index_t number) const { return data_[offset_of(number)]; }

    // Returns the offset of the element at these indices from element [0, ..., 0], in elements.
    template <typename... Index>
    INTEROP_FN index_t offset(Index... index) const {
        static_assert(sizeof...(Index) == N, "one index for each axis");
        int axis = 0;
        index_t sum = 0;
        // A braced list is evaluated from left to right, unlike the arguments of a call. The first 0 is for N = 0.
        index_t order[] = {0, (sum += static_cast<index_t>(index) * stride(axis++))...};
        (void)order;
        (void)axis;
        return sum;
    }

    // Returns the offset of the element with this number from element [0, ..., 0], in elements.
    INTEROP_FN index_t offset_of(index_t number) const {
        index_t sum = 0;
        for (int axis = N - 1; axis > 0; --axis) {
            index_t rest = detail::divide(number, shape(axis));
            sum += (number - rest * shape(axis)) * stride(axis);
            number = rest;
        }
        return N > 0 ? sum + number * stride(0) : sum;
    }

    // Writes the indices of the element with this number to `indices`.
    INTEROP_FN void indices_of(index_t number, index_t (&indices)[N > 0 ? N : 1]) const {
        for (int axis = N - 1; axis > 0; --axis) {
            index_t rest = detail::divide(number, shape(axis));
            indices[axis] = number - rest * shape(axis);
            number = rest;
        }
        indices[0] = number;
    }

    // Returns whether the elements lie without gaps in row-major order, so that element `number` is data()[number]. The
    // stride of an axis of extent 1 does not matter. An array without elements is contiguous.
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

    // Returns the same array for reading.
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

// Whether the layout is that of the Rust struct: a kernel's argument is copied as bytes that the Rust side has filled.
template <typename T, int N>
constexpr bool is_plain = sizeof(view<T, N>) == 8 + 16 * N && alignof(view<T, N>) == 8 &&
                          __is_standard_layout(view<T, N>) && __is_trivially_copyable(view<T, N>);

static_assert(is_plain<char, 0> && is_plain<const float, 1> && is_plain<double, 4> && is_plain<int, 64>,
              "the layout is that of the Rust struct");

// An extent of less than 2^31, and the numbers by which the Rust side replaces the division by it.
struct extent {
    unsigned value, multiplier, shift, unused;

    // Returns the quotient of a number of less than 2^31, and leaves the remainder in `number`.
    INTEROP_FN unsigned divide(unsigned& number) const {
        const unsigned high = static_cast<unsigned>(static_cast<unsigned long long>(number) * multiplier >> 32);
        const unsigned quotient = (high + number) >> (shift & 31);
        number -= quotient * value;
        return quotient;
    }
};

// Returns how many elements of these sizes are loaded at once: as many of the largest as 16 bytes hold. The result is 1 if a size is no power of two or is larger than 16. The Rust side computes the same.
template <typename... Size>
INTEROP_FN constexpr int width_of(Size... sizes) {
    const int sized[] = {static_cast<int>(sizes)...};
    int most = 1;
    bool are_powers = true;
    for (int size : sized) {
        most = size > most ? size : most;
        are_powers = are_powers && (size & (size - 1)) == 0;
    }
    return !are_powers || most > 16 ? 1 : 16 / most;
}

template <typename T>
struct no_const {
    using type = T;
};
template <typename T>
struct no_const<const T> {
    using type = T;
};

// W elements that are loaded and stored at once.
template <typename T, int W>
struct alignas(W * sizeof(T)) pack {
    T items[W];
};
template <typename T>
struct pack<T, 1> {
    T items[1];
};

// One pack for each array.
template <int W, typename... T>
struct packs {};
template <int W, typename First, typename... Rest>
struct packs<W, First, Rest...> {
    pack<typename no_const<First>::type, W> first;
    packs<W, Rest...> rest;
};

// Calls a function with the element `at` of every pack.
template <int W, typename F, typename... Seen>
INTEROP_FN auto call(F function, int, const packs<W>&, const Seen&... seen) {
    return function(seen...);
}
template <int W, typename F, typename First, typename... Rest, typename... Seen>
INTEROP_FN auto call(F function, int at, const packs<W, First, Rest...>& packs, const Seen&... seen) {
    return call(function, at, packs.rest, seen..., packs.first.items[at]);
}

}  // namespace detail

#if defined(__CUDACC__)

namespace detail {

// The type that is loaded and stored at once. A struct of small items would be loaded item by item.
template <int BYTES>
struct word;
template <>
struct word<2> {
    using type = unsigned short;
};
template <>
struct word<4> {
    using type = unsigned;
};
template <>
struct word<8> {
    using type = uint2;
};
template <>
struct word<16> {
    using type = uint4;
};

template <typename T, int W>
__device__ inline void load(pack<T, W>& to, const T* from) {
    if constexpr (W == 1) {
        to.items[0] = *from;
    } else {
        const auto bits = *reinterpret_cast<const typename word<W * sizeof(T)>::type*>(from);
        memcpy(&to, &bits, sizeof bits);
    }
}

template <typename T, int W>
__device__ inline void store(T* to, const pack<T, W>& from) {
    if constexpr (W == 1) {
        *to = from.items[0];
    } else {
        typename word<W * sizeof(T)>::type bits;
        memcpy(&bits, &from, sizeof bits);
        *reinterpret_cast<decltype(bits)*>(to) = bits;
    }
}

// The ways in which a function is applied to the arrays.
struct map {
    enum { READS_FIRST = false, WRITES_FIRST = true };
    template <typename F, typename Packs>
    static __device__ void call(F function, int at, Packs& packs) {
        packs.first.items[at] = detail::call(function, at, packs.rest);
    }
};
struct map_inplace {
    enum { READS_FIRST = true, WRITES_FIRST = true };
    template <typename F, typename Packs>
    static __device__ void call(F function, int at, Packs& packs) {
        packs.first.items[at] = detail::call(function, at, packs);
    }
};
struct for_each {
    enum { READS_FIRST = true, WRITES_FIRST = false };
    template <typename F, typename Packs>
    static __device__ void call(F function, int at, Packs& packs) {
        detail::call(function, at, packs);
    }
};

}  // namespace detail

#endif

// Arrays of one shape, whose axes the Rust side has sorted by stride and merged: `KernelArrays<K, N>`, with at most N
// axes. An element type T is const if the kernel only reads the array.
//
// Threads work on units. The first `full` units along the innermost axis are `width` elements, which are adjacent and
// loaded at once. They begin after `head` elements. The others have four elements, `step` elements apart: those after the
// last full unit, then those of the head. Units are counted in 32 bits, so an array with
// more units is processed in slabs of `piece` indices of the outermost axis.
template <int N, typename... T>
struct elementwise {
    // The constants are enumerators, because these leave no variables in the PTX.
    enum : int { K = sizeof...(T), WIDTH = detail::width_of(sizeof(T)...), SPREAD = 4 };
    static_assert(K > 0 && N > 0, "at least one array of at least one axis");

    struct axis {
        // That of the outermost axis is not used.
        detail::extent extent;
        index_t strides[K];
    };

    // The number of indices of the outermost axis in a slab, and of all.
    index_t piece, outer;
    // The number of elements along the innermost axis.
    index_t row;
    index_t full, step;
    // The number of units for one index of the outermost axis.
    unsigned inner;
    unsigned rank, width, head;
    unsigned long long addresses[K];
    // The innermost axis comes first.
    axis axes[N];

#if defined(__CUDACC__)
    // Sets the first array to what the function returns for the elements of the others. The first array is not read.
    template <typename F>
    __device__ void map(F function) const {
        visit<detail::map>(function);
    }

    // Sets the first array to what the function returns for the elements of all arrays.
    template <typename F>
    __device__ void map_inplace(F function) const {
        visit<detail::map_inplace>(function);
    }

    // Calls the function with the elements of all arrays, in no particular order.
    template <typename F>
    __device__ void for_each(F function) const {
        visit<detail::for_each>(function);
    }

private:
    // Adds a stride of each array, times an index, to the offsets.
    __device__ void move(index_t (&offsets)[K], const index_t (&strides)[K], index_t index) const {
        INTEROP_UNROLL
        for (int array = 0; array < K; ++array) offsets[array] += index * strides[array];
    }

    // The loops over axes are unrolled: an index that is known only when the kernel runs would copy the argument to local
    // memory.
    template <typename Mode, typename F>
    __device__ void visit(F function) const {
        const index_t own = blockIdx.x * static_cast<index_t>(blockDim.x) + threadIdx.x;
        const index_t threads = gridDim.x * static_cast<index_t>(blockDim.x);
        index_t outer_strides[K] = {};
        INTEROP_UNROLL
        for (unsigned at = 1; at < N; ++at) {
            if (at >= rank) break;
            INTEROP_UNROLL
            for (int array = 0; array < K; ++array) outer_strides[array] = axes[at].strides[array];
        }
        INTEROP_KEEP_LOOP
        for (index_t from = 0; from < outer; from += piece) {
            const index_t left = outer - from, units = inner * (left < piece ? left : piece);
            INTEROP_KEEP_LOOP
            for (index_t number = own; number < units; number += threads) {
                unsigned rest = static_cast<unsigned>(number);
                index_t along = from + rest, offsets[K] = {};
                INTEROP_UNROLL
                for (unsigned at = 0; at + 1 < N; ++at) {
                    if (at + 1 >= rank) break;
                    unsigned index = rest;
                    rest = axes[at].extent.divide(index);
                    if (at == 0) along = index;
                    else move(offsets, axes[at].strides, index);
                }
                move(offsets, outer_strides, from + rest);
                visit_unit<Mode>(function, along, offsets);
            }
        }
    }

    // Processes the unit with an index along the innermost axis.
    template <typename Mode, typename F>
    __device__ void visit_unit(F function, index_t along, index_t (&offsets)[K]) const {
        const bool is_full = WIDTH > 1 && along < full;
        const index_t next = full > 0 ? SPREAD : 1;
        const index_t at = is_full ? along * WIDTH : full * WIDTH + (along - full) * next;
        move(offsets, axes[0].strides, at + head);
        if constexpr (WIDTH > 1) {
            if (is_full) {
                index_t places[1][K];
                INTEROP_UNROLL
                for (int array = 0; array < K; ++array) places[0][array] = offsets[array];
                work<Mode, WIDTH>(function, places, {true});
                return;
            }
        }
        index_t places[SPREAD][K];
        bool are_there[SPREAD];
        INTEROP_UNROLL
        for (int unit = 0; unit < SPREAD; ++unit) {
            are_there[unit] = at + unit * step < row;
            // The elements after the last one of the row are those of its head. Then the strides are 1.
            const index_t back = at + head + unit * step < row ? 0 : row;
            INTEROP_UNROLL
            for (int array = 0; array < K; ++array) {
                places[unit][array] = offsets[array] + unit * step * axes[0].strides[array] - back;
            }
        }
        work<Mode, 1>(function, places, are_there);
    }

    // Processes the units that exist, and loads all of them first.
    template <typename Mode, int W, typename F, int U>
    __device__ void work(F function, const index_t (&places)[U][K], const bool (&are_there)[U]) const {
        detail::packs<W, T...> values[U];
        INTEROP_UNROLL
        for (int unit = 0; unit < U; ++unit) {
            if (are_there[unit]) load<Mode::READS_FIRST, 0>(values[unit], places[unit]);
        }
        INTEROP_UNROLL
        for (int unit = 0; unit < U; ++unit) {
            if (!are_there[unit]) continue;
            INTEROP_UNROLL
            for (int at = 0; at < W; ++at) Mode::call(function, at, values[unit]);
            if constexpr (Mode::WRITES_FIRST) detail::store(pointer<0>(values[unit], places[unit]), values[unit].first);
        }
    }

    template <int ARRAY, int W, typename First, typename... Rest>
    __device__ First* pointer(const detail::packs<W, First, Rest...>&, const index_t (&places)[K]) const {
        return reinterpret_cast<First*>(addresses[ARRAY]) + places[ARRAY];
    }

    template <bool READS, int ARRAY, int W, typename First, typename... Rest>
    __device__ void load(detail::packs<W, First, Rest...>& packs, const index_t (&places)[K]) const {
        if constexpr (READS) detail::load(packs.first, pointer<ARRAY>(packs, places));
        if constexpr (sizeof...(Rest) > 0) load<true, ARRAY + 1>(packs.rest, places);
    }
#endif
};

namespace detail {

static_assert(sizeof(elementwise<8, float>) == 64 + 8 * 24 && sizeof(elementwise<4, float, const char>) == 72 + 4 * 32 &&
                  __is_standard_layout(elementwise<8, float>) && __is_trivially_copyable(elementwise<8, float>),
              "the layout is that of the Rust struct");

}  // namespace detail
}  // namespace interop

#undef INTEROP_FN
#undef INTEROP_UNROLL
#undef INTEROP_KEEP_LOOP
#endif  // INTEROP_CUH
