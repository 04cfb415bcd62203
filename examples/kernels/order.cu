// Kernels that make the order of work visible: a delay, a producer, and a consumer that counts elements not yet
// written.

#include "elements.cuh"

using interop::index_t;
using interop::view;

// Keeps the device busy for this many clock cycles. Launch it with one thread.
extern "C" __global__ void spin(unsigned long long cycles) {
    const long long start = clock64();
    while (static_cast<unsigned long long>(clock64() - start) < cycles) {
    }
}

// Sets element `i` to `value + i`.
extern "C" __global__ void produce(view<unsigned, 1> to, unsigned value) {
    for (index_t at = elements::number(); at < to.size(); at += elements::count()) {
        to(at) = value + static_cast<unsigned>(at);
    }
}

// Adds to `mismatches` the number of elements `i` that are not `value + i`.
extern "C" __global__ void consume(view<const unsigned, 1> from, unsigned value, view<unsigned long long, 0> mismatches) {
    unsigned long long wrong = 0;
    for (index_t at = elements::number(); at < from.size(); at += elements::count()) {
        wrong += from(at) != value + static_cast<unsigned>(at);
    }
    if (wrong > 0) atomicAdd(mismatches.data(), wrong);
}
