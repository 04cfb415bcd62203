// The loops of `interop.cuh` on the host, thread by thread. Reads from standard input: the number of the kernel, blocks,
// threads, the number of arrays, the bytes of each, the address of the first byte of each in the program that made the
// argument; the argument; the bytes. Prints the bytes of the first array.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// What a compiler for devices has.
#define __CUDACC__
#define __host__
#define __device__
struct dimension {
    unsigned x;
};
static dimension threadIdx, blockIdx, blockDim, gridDim;
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

#include "interop.cuh"

namespace {

void read_bytes(void* to, size_t bytes) {
    if (std::fread(to, 1, bytes, stdin) != bytes) std::exit(3);
}

struct head {
    unsigned long long kernel, blocks, threads, arrays, bytes, address;
};

template <typename Kernel>
void launch(const head& head, Kernel kernel) {
    gridDim.x = static_cast<unsigned>(head.blocks);
    blockDim.x = static_cast<unsigned>(head.threads);
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
        for (threadIdx.x = 0; threadIdx.x < blockDim.x; ++threadIdx.x) kernel();
    }
}

// The memory of the arrays, aligned as any.
struct memory {
    std::vector<std::vector<uint4>> arrays;
};

template <typename... T>
interop::elementwise<8, T...> argument(const head& head, memory& memory) {
    interop::elementwise<8, T...> arrays;
    if (head.arrays != sizeof...(T)) std::exit(4);
    read_bytes(&arrays, sizeof arrays);
    for (auto& address : arrays.addresses) {
        memory.arrays.emplace_back(head.bytes / 16);
        read_bytes(memory.arrays.back().data(), head.bytes);
        address += reinterpret_cast<unsigned long long>(memory.arrays.back().data()) - head.address;
    }
    return arrays;
}

}  // namespace

int main() {
    head head;
    read_bytes(&head, sizeof head);
    memory memory;
    if (head.kernel == 0) {
        const auto arrays = argument<unsigned>(head, memory);
        launch(head, [&] { arrays.map_inplace([](unsigned old) { return old * 3 + 1; }); });
    } else if (head.kernel == 1) {
        const auto arrays = argument<unsigned char>(head, memory);
        launch(head, [&] {
            arrays.map_inplace([](unsigned char old) { return static_cast<unsigned char>(old * 3 + 1); });
        });
    } else if (head.kernel == 2) {
        const auto arrays = argument<unsigned, const unsigned, const unsigned char>(head, memory);
        launch(head, [&] { arrays.map([](unsigned left, unsigned char right) { return left * 256 + right; }); });
    } else {
        const auto arrays = argument<const unsigned short>(head, memory);
        unsigned long long sum = 0;
        launch(head, [&] { arrays.for_each([&](unsigned long long element) { sum += element * element; }); });
        std::memcpy(memory.arrays[0].data(), &sum, sizeof sum);
    }
    return std::fwrite(memory.arrays[0].data(), 1, head.bytes, stdout) == head.bytes ? 0 : 5;
}
