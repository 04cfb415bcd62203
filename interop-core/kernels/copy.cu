// Kernels that copy the elements of a strided array into compact memory, as planned by `cuda::copy_plan`.
//
// A unit has 1, 2, 4, 8 or 16 bytes. Both addresses and all strides are aligned to it. The host merges axes, widens the
// unit if possible, and splits a copy that has more units than 31 bits count. `strided` reads in the order of the
// target. `tiled` goes through shared memory; it is for arrays whose units lie side by side along another axis than the
// target's.

// The namespace has a name, because NVRTC would give the contents of an unnamed one another name in every run.
namespace copies {

constexpr unsigned THREADS = 256;
constexpr int MOST_AXES = 6;
// The size of a tile in shared memory in bytes, without padding.
constexpr unsigned TILE_BYTES = 16384;

// An axis: its extent, the numbers with which `divide` divides by it, and its strides in bytes.
struct Axis {
    unsigned extent, multiplier, shift, unused;
    long long from, to;
};

struct Arguments {
    unsigned count, rank, log_across, log_down;
    // The number of tiles along each of the first two axes.
    Axis tiles[2];
    Axis axes[MOST_AXES];
};

// Returns `number` / extent, for numbers below 2^31 (Granlund and Montgomery).
__device__ inline unsigned divide(unsigned number, const Axis& axis) {
    return (__umulhi(number, axis.multiplier) + number) >> axis.shift;
}

struct Offsets {
    long long from = 0, to = 0;
};

// Returns the offsets of the `number`th index of the axes from `FIRST` on. The first of these axes varies fastest.
template <int FIRST>
__device__ Offsets offsets(unsigned number, const Arguments& copy) {
    Offsets at;
#pragma unroll
    for (int axis = FIRST; axis < MOST_AXES; axis++) {
        if (axis >= copy.rank) break;
        const unsigned quotient = divide(number, copy.axes[axis]);
        const long long index = number - quotient * copy.axes[axis].extent;
        at.from += index * copy.axes[axis].from;
        at.to += index * copy.axes[axis].to;
        number = quotient;
    }
    return at;
}

template <typename T>
__device__ T load(const unsigned char* from) {
    return __ldg(reinterpret_cast<const T*>(from));
}

template <typename T>
__device__ void store(unsigned char* to, T value) {
    *reinterpret_cast<T*>(to) = value;
}

// Each thread copies four units that are a block of threads apart.
template <typename T>
__device__ void strided(unsigned char* to, const unsigned char* from, const Arguments& copy) {
    constexpr unsigned EACH = 4;
    const unsigned first = blockIdx.x * (THREADS * EACH) + threadIdx.x;
    T items[EACH];
#pragma unroll
    for (unsigned turn = 0; turn < EACH; turn++) {
        const unsigned number = first + turn * THREADS;
        if (number < copy.count) items[turn] = load<T>(from + offsets<0>(number, copy).from);
    }
#pragma unroll
    for (unsigned turn = 0; turn < EACH; turn++) {
        const unsigned number = first + turn * THREADS;
        if (number < copy.count) store<T>(to + static_cast<unsigned long long>(number) * sizeof(T), items[turn]);
    }
}

// Each thread copies four words of small units that are a block of threads apart, and stores each word at once.
template <typename T>
__device__ void strided_words(unsigned char* to, const unsigned char* from, const Arguments& copy) {
    constexpr unsigned EACH = 4, PACK = 4 / sizeof(T);
    const unsigned first = (blockIdx.x * (THREADS * EACH) + threadIdx.x) * PACK;
    const bool is_aligned = reinterpret_cast<unsigned long long>(to) % 4 == 0;
    const Axis& inner = copy.axes[0];
    T items[EACH][PACK];
    bool is_whole[EACH];
#pragma unroll
    for (unsigned turn = 0; turn < EACH; turn++) {
        const unsigned number = first + turn * THREADS * PACK;
        const unsigned index = number - divide(number, inner) * inner.extent;
        // All units of a whole word are in one row.
        is_whole[turn] = is_aligned && number < copy.count && index + PACK <= inner.extent;
        if (is_whole[turn]) {
            const unsigned char* place = from + offsets<0>(number, copy).from;
#pragma unroll
            for (unsigned at = 0; at < PACK; at++) items[turn][at] = load<T>(place + at * inner.from);
        }
    }
#pragma unroll
    for (unsigned turn = 0; turn < EACH; turn++) {
        const unsigned number = first + turn * THREADS * PACK;
        unsigned char* place = to + static_cast<unsigned long long>(number) * sizeof(T);
        if (is_whole[turn]) {
            unsigned word = 0;
#pragma unroll
            for (unsigned at = 0; at < PACK; at++) word |= unsigned{items[turn][at]} << (8 * sizeof(T) * at);
            store<unsigned>(place, word);
            continue;
        }
#pragma unroll 1
        for (unsigned at = 0; at < PACK; at++) {
            if (number + at >= copy.count) break;
            store<T>(place + at * sizeof(T), load<T>(from + offsets<0>(number + at, copy).from));
        }
    }
}

// The type of a unit in shared memory. A unit of less than a word takes a word, because neighbouring threads would
// otherwise wait for each other.
template <typename T, bool IS_SMALL = (sizeof(T) < 4)>
struct Slot {
    using Type = T;
};
template <typename T>
struct Slot<T, true> {
    using Type = unsigned;
};

// Each block copies one tile: 2^log_across units along the first axis, on which the target varies fastest, and
// 2^log_down along the second, on which the source does.
template <typename T>
__device__ void tiled(unsigned char* to, const unsigned char* from, const Arguments& copy) {
    using Kept = typename Slot<T>::Type;
    constexpr unsigned UNITS = TILE_BYTES / sizeof(Kept), TURNS = UNITS / THREADS;
    // A row is one slot longer than the tile, and there are at most a quarter as many rows as units.
    __shared__ Kept kept[UNITS + UNITS / 4];
    const unsigned across_mask = (1u << copy.log_across) - 1, down_mask = (1u << copy.log_down) - 1;
    const unsigned pitch = across_mask + 2;
    const unsigned row = divide(blockIdx.x, copy.tiles[1]);
    const unsigned batch = divide(row, copy.tiles[0]);
    const unsigned first_down = (blockIdx.x - row * copy.tiles[1].extent) << copy.log_down;
    const unsigned first_across = (row - batch * copy.tiles[0].extent) << copy.log_across;
    const Offsets start = offsets<2>(batch, copy);
    const Axis &across_axis = copy.axes[0], &down_axis = copy.axes[1];
    // All loads are issued before the first one is waited for.
    T items[TURNS];
#pragma unroll
    for (unsigned turn = 0; turn < TURNS; turn++) {
        const unsigned number = turn * THREADS + threadIdx.x;
        const unsigned a = first_across + (number >> copy.log_down), d = first_down + (number & down_mask);
        items[turn] = T{};
        if (a < across_axis.extent && d < down_axis.extent) {
            items[turn] = load<T>(from + start.from + a * across_axis.from + d * down_axis.from);
        }
    }
#pragma unroll
    for (unsigned turn = 0; turn < TURNS; turn++) {
        const unsigned number = turn * THREADS + threadIdx.x;
        kept[(number & down_mask) * pitch + (number >> copy.log_down)] = items[turn];
    }
    __syncthreads();
#pragma unroll
    for (unsigned turn = 0; turn < TURNS; turn++) {
        const unsigned number = turn * THREADS + threadIdx.x;
        const unsigned across = number & across_mask, down = number >> copy.log_across;
        const unsigned a = first_across + across, d = first_down + down;
        if (a < across_axis.extent && d < down_axis.extent) {
            const T item = static_cast<T>(kept[down * pitch + across]);
            store<T>(to + start.to + a * across_axis.to + d * down_axis.to, item);
        }
    }
}

}  // namespace copies

#define DEFINE_COPIES(bytes, T, by_stride)                                                                             \
    extern "C" __global__ void __launch_bounds__(copies::THREADS)                                                      \
        interop_copy_strided_##bytes(unsigned char* to, const unsigned char* from, const copies::Arguments copy) {     \
        copies::by_stride<T>(to, from, copy);                                                                          \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(copies::THREADS)                                                      \
        interop_copy_tiled_##bytes(unsigned char* to, const unsigned char* from, const copies::Arguments copy) {       \
        copies::tiled<T>(to, from, copy);                                                                              \
    }

DEFINE_COPIES(1, unsigned char, strided_words)
DEFINE_COPIES(2, unsigned short, strided_words)
DEFINE_COPIES(4, unsigned, strided)
DEFINE_COPIES(8, unsigned long long, strided)
DEFINE_COPIES(16, uint4, strided)
