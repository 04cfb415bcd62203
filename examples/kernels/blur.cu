// Computes the mean of the 3 x 3 neighbourhood of every pixel of an image of height x width x channels. Beyond an edge,
// the pixels of the edge are repeated. `from` and `to` must have the same shape, which the caller checks, and must not
// overlap.
//
// Memory bandwidth is the limit: every element must be read once and written once, and all other work must fit into
// that time. So each warp walks down a strip of rows. A lane holds 16 bytes of the last three rows in registers, while
// the next rows are being loaded. It adds them vertically, gets its neighbours' sums by shuffles, and adds those
// horizontally. The outermost lanes only serve their neighbours. No shared memory and no barrier are needed, and an
// element is loaded twice only where strips meet. Images whose rows cannot be loaded this way are processed element by
// element.
//
// All variants add first down, then across, in index order, and so does the reference on the host. So all results are
// equal.

#include "elements.cuh"

namespace {

using interop::index_t;
using interop::view;

constexpr int RADIUS = 1;
constexpr int TAPS = 2 * RADIUS + 1;
constexpr int LANES = 32;
constexpr unsigned ALL_LANES = 0xFFFFFFFFu;
// The number of rows that are being loaded while others are added.
constexpr int AHEAD = 3;
// Rows of strips are counted in 32 bits. This leaves a margin for rounding up each block's share.
constexpr index_t MOST_ROWS = 1 << 30;

// A lane's 16 bytes of a row, as floats.
struct Floats {
    using Element = float;
    static constexpr int COUNT = 4;

    using Raw = float4;
    struct Sums {
        float items[COUNT];
    };

    // The rows of a neighbourhood. They are added anew each time, because adding and subtracting a float leaves an
    // error.
    struct Column {
        Raw rows[TAPS] = {};

        __device__ Sums push(const Raw& raw) {
            #pragma unroll
            for (int row = 0; row < TAPS - 1; ++row) rows[row] = rows[row + 1];
            rows[TAPS - 1] = raw;
            Sums sums = {{rows[0].x, rows[0].y, rows[0].z, rows[0].w}};
            #pragma unroll
            for (int row = 1; row < TAPS; ++row) {
                sums.items[0] += rows[row].x;
                sums.items[1] += rows[row].y;
                sums.items[2] += rows[row].z;
                sums.items[3] += rows[row].w;
            }
            return sums;
        }
    };

    // Returns the elements beyond an edge: the pixel at that end of `raw`, repeated.
    template <int C>
    static __device__ Raw beyond(const Raw& raw, bool left) {
        const float items[COUNT] = {raw.x, raw.y, raw.z, raw.w};
        float repeated[COUNT];
        #pragma unroll
        for (int item = 0; item < COUNT; ++item) repeated[item] = left ? items[(item + (C - COUNT % C)) % C] : items[COUNT - C + item % C];
        return make_float4(repeated[0], repeated[1], repeated[2], repeated[3]);
    }

    static __device__ float mean(float sum) { return sum * (1.0f / (TAPS * TAPS)); }

    template <int C>
    static __device__ Raw across(const Sums& sums) {
        constexpr int REACH = RADIUS * C;
        float window[COUNT + 2 * REACH];
        #pragma unroll
        for (int at = 0; at < COUNT + 2 * REACH; ++at) {
            // Lanes to the left are negative; 16 * COUNT keeps the dividend positive.
            const int lane = (at - REACH + 16 * COUNT) / COUNT - 16;
            const float item = sums.items[(at - REACH + 16 * COUNT) % COUNT];
            window[at] = lane < 0   ? __shfl_up_sync(ALL_LANES, item, -lane)
                         : lane > 0 ? __shfl_down_sync(ALL_LANES, item, lane)
                                    : item;
        }
        float means[COUNT];
        #pragma unroll
        for (int item = 0; item < COUNT; ++item) {
            float sum = window[item];
            #pragma unroll
            for (int tap = 1; tap < TAPS; ++tap) sum += window[item + tap * C];
            means[item] = mean(sum);
        }
        return make_float4(means[0], means[1], means[2], means[3]);
    }
};

// Bytes are added in pairs, with 16 bits each in one word: TAPS * TAPS * 255 fits.
struct Bytes {
    using Element = unsigned char;
    static constexpr int COUNT = 16;

    using Raw = uint4;
    static constexpr int PAIRS = COUNT / 2;
    struct Sums {
        unsigned pairs[PAIRS];
    };

    // The rows of a neighbourhood and their running sum. The oldest row is subtracted, which is exact for integers.
    struct Column {
        Sums rows[TAPS] = {};
        Sums total = {};

        __device__ Sums push(const Raw& raw) {
            const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
            Sums fresh;
            #pragma unroll
            for (int word = 0; word < 4; ++word) {
                fresh.pairs[2 * word] = __byte_perm(words[word], 0, 0x4140);
                fresh.pairs[2 * word + 1] = __byte_perm(words[word], 0, 0x4342);
            }
            #pragma unroll
            for (int pair = 0; pair < PAIRS; ++pair) total.pairs[pair] += fresh.pairs[pair] - rows[0].pairs[pair];
            #pragma unroll
            for (int row = 0; row < TAPS - 1; ++row) rows[row] = rows[row + 1];
            rows[TAPS - 1] = fresh;
            return total;
        }
    };

    // As for floats. The pixel is in the first or in the last word.
    template <int C>
    static __device__ Raw beyond(const Raw& raw, bool left) {
        unsigned words[4];
        #pragma unroll
        for (int word = 0; word < 4; ++word) {
            unsigned first = 0, last = 0;
            #pragma unroll
            for (int byte = 0; byte < 4; ++byte) {
                const int item = 4 * word + byte;
                first |= (item + (C - COUNT % C)) % C << (4 * byte);
                last |= (4 - C + item % C) << (4 * byte);
            }
            words[word] = left ? __byte_perm(raw.x, 0, first) : __byte_perm(raw.w, 0, last);
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }

    // Returns the rounded mean in the highest byte. The factor is 2^24 / 9, rounded up, which is exact enough for every
    // possible sum.
    static __device__ unsigned scaled(unsigned sum) { return (sum + TAPS * TAPS / 2) * 1864136u; }
    static __device__ unsigned char mean(unsigned sum) { return static_cast<unsigned char>(scaled(sum) >> 24); }

    template <int C>
    static __device__ Raw across(const Sums& sums) {
        // The number of pairs on either side that hold RADIUS * C items.
        constexpr int REACH = (RADIUS * C + 1) / 2;
        static_assert(REACH <= PAIRS, "the neighbours of a lane have all that it needs");
        unsigned window[PAIRS + 2 * REACH];
        #pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) window[REACH + pair] = sums.pairs[pair];
        #pragma unroll
        for (int pair = 0; pair < REACH; ++pair) {
            window[pair] = __shfl_up_sync(ALL_LANES, sums.pairs[PAIRS - REACH + pair], 1);
            window[REACH + PAIRS + pair] = __shfl_down_sync(ALL_LANES, sums.pairs[pair], 1);
        }
        unsigned bytes[PAIRS];
        #pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair) {
            unsigned sum = 0;
            #pragma unroll
            for (int tap = 0; tap < TAPS; ++tap) {
                // A pair that starts in the middle of a word is assembled from two words.
                const int item = 2 * (REACH + pair) + (tap - RADIUS) * C;
                sum += item % 2 == 0 ? window[item / 2] : __byte_perm(window[item / 2], window[item / 2 + 1], 0x5432);
            }
            bytes[pair] = __byte_perm(scaled(sum & 0xFFFF), scaled(sum >> 16), 0x0073);
        }
        return make_uint4(__byte_perm(bytes[0], bytes[1], 0x5410), __byte_perm(bytes[2], bytes[3], 0x5410),
                          __byte_perm(bytes[4], bytes[5], 0x5410), __byte_perm(bytes[6], bytes[7], 0x5410));
    }
};

__device__ index_t clamp(index_t at, index_t extent) { return at < 0 ? 0 : at < extent ? at : extent - 1; }

// Whether the elements of each row are contiguous and whole rows can be loaded in pieces of 16 bytes.
template <typename T>
__device__ bool has_wide_rows(const view<T, 3>& image) {
    const index_t width = image.shape(1), channels = image.shape(2);
    const bool whole = (channels == 1 || image.stride(2) == 1) && (width == 1 || image.stride(1) == channels);
    const index_t bytes = static_cast<index_t>(sizeof(T));
    const auto address = reinterpret_cast<unsigned long long>(image.data());
    return whole && ((address | image.stride(0) * bytes | width * channels * bytes) & 15) == 0;
}

// Processes strips of such rows. The grid's y axis divides the rows and its x axis the strips. The block size is a
// multiple of the warp size.
template <typename A, int C>
__device__ void blur_strips(const view<const typename A::Element, 3>& from, const view<typename A::Element, 3>& to) {
    using Raw = typename A::Raw;
    // The lanes at either end of a warp only provide sums to their neighbours.
    static_assert(RADIUS * C <= A::COUNT, "one lane has all that its neighbour needs");
    constexpr int STEP = (LANES - 2) * A::COUNT;
    const int lane = threadIdx.x % LANES;
    const int height = static_cast<int>(from.shape(0));
    const index_t width = from.shape(1) * C;
    const int rows_each = (height - 1) / static_cast<int>(gridDim.y) + 1;
    const int top = static_cast<int>(blockIdx.y) * rows_each, bottom = min(top + rows_each, height);
    if (top >= bottom) return;

    const index_t warps = blockDim.x / LANES;
    for (index_t strip = blockIdx.x * warps + threadIdx.x / LANES; strip * STEP < width; strip += gridDim.x * warps) {
        const index_t first = strip * STEP + (lane - 1) * A::COUNT;
        const bool left = first < 0, inside = !left && first < width;
        const bool stores = lane > 0 && lane < LANES - 1 && inside;
        // A lane beyond an edge loads the elements at the edge. It replaces them only when they are used, because
        // waiting for them here would delay the loads of other rows.
        const bool at_edge = __any_sync(ALL_LANES, !inside);
        const index_t start = left ? 0 : inside ? first : width - A::COUNT;
        const auto sums_with = [&](typename A::Column& column, Raw raw) {
            if (at_edge && !inside) raw = A::template beyond<C>(raw, left);
            return column.push(raw);
        };

        int next = top - RADIUS;
        const typename A::Element* row = from.data() + max(next, 0) * from.stride(0) + start;
        const auto load_next = [&] {
            const Raw raw = __ldg(reinterpret_cast<const Raw*>(row));
            ++next;
            if (next > 0 && next < height) row += from.stride(0);
            return raw;
        };
        Raw ahead[TAPS - 1 + AHEAD];
        #pragma unroll
        for (Raw& raw : ahead) raw = load_next();
        typename A::Column column;
        #pragma unroll
        for (int at = 0; at < TAPS - 1; ++at) sums_with(column, ahead[at]);
        #pragma unroll
        for (int at = 0; at < AHEAD; ++at) ahead[at] = ahead[TAPS - 1 + at];

        typename A::Element* target = to.data() + top * to.stride(0) + first;
        // The loop is unrolled TAPS times, so that rows need not move between registers.
        static_assert(AHEAD == TAPS, "both take turns at the same pace");
        #pragma unroll (TAPS)
        for (int y = top; y < bottom; ++y, target += to.stride(0)) {
            const Raw fresh = load_next();
            const Raw means = A::template across<C>(sums_with(column, ahead[0]));
            // The result is written once and not read here again. The cache is for rows that the next strip down needs.
            if (stores) __stcs(reinterpret_cast<Raw*>(target), means);
            #pragma unroll
            for (int at = 0; at < AHEAD - 1; ++at) ahead[at] = ahead[at + 1];
            ahead[AHEAD - 1] = fresh;
        }
    }
}

// Any strides and any number of channels: one thread per element. The caches serve repeated reads.
template <typename A, typename Sum>
__device__ void blur_elements(const view<const typename A::Element, 3>& from, const view<typename A::Element, 3>& to) {
    const index_t number = (blockIdx.y * static_cast<index_t>(gridDim.x) + blockIdx.x) * blockDim.x + threadIdx.x;
    const index_t count = static_cast<index_t>(gridDim.y) * gridDim.x * blockDim.x;
    for (index_t element = number; element < to.size(); element += count) {
        index_t at[3];
        to.indices_of(element, at);
        Sum sum = 0;
        for (int across = -RADIUS; across <= RADIUS; ++across) {
            const index_t x = clamp(at[1] + across, from.shape(1));
            Sum column = 0;
            for (int down = -RADIUS; down <= RADIUS; ++down) {
                column += from(clamp(at[0] + down, from.shape(0)), x, at[2]);
            }
            sum += column;
        }
        to(at[0], at[1], at[2]) = A::mean(sum);
    }
}

template <typename A, typename Sum>
__device__ void blur(const view<const typename A::Element, 3>& from, const view<typename A::Element, 3>& to) {
    // An empty image has no edge to repeat.
    if (to.size() == 0) return;
    const bool in_strips = from.shape(0) <= MOST_ROWS && has_wide_rows(from) && has_wide_rows(to);
    const index_t channels = in_strips ? from.shape(2) : 0;
    if (channels == 1) return blur_strips<A, 1>(from, to);
    if (channels == 3) return blur_strips<A, 3>(from, to);
    if (channels == 4) return blur_strips<A, 4>(from, to);
    blur_elements<A, Sum>(from, to);
}

}  // namespace

// Three blocks per multiprocessor: both more and fewer registers per thread were measured to be slower.
extern "C" __global__ void __launch_bounds__(256, 3) blur_f32(view<const float, 3> from, view<float, 3> to) {
    blur<Floats, float>(from, to);
}

extern "C" __global__ void __launch_bounds__(256, 3)
blur_u8(view<const unsigned char, 3> from, view<unsigned char, 3> to) {
    blur<Bytes, unsigned>(from, to);
}
