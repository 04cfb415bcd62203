// Kernels that show in which order work was done: a delay, a producer, and a consumer that counts what it found too early.

#include "elements.cuh"

using interop::index_t;
using interop::view;

// Keeps the device busy for this many of its clock cycles. Launched with one thread.
extern "C" __global__ void spin(unsigned long long cycles) {
    const long long start = clock64();
    while (static_cast<unsigned long long>(clock64() - start) < cycles) {
    }
}

// Element `i` becomes `value + i`.
extern "C" __global__ void produce(view<unsigned, 1> to, unsigned value) {
    for (index_t at = elements::number(); at < to.size(); at += elements::count()) {
        to(at) = value + static_cast<unsigned>(at);
    }
}

// Adds to `mismatches` how many elements `i` are not `value + i`.
extern "C" __global__ void consume(view<const unsigned, 1> from, unsigned value, view<unsigned long long, 0> mismatches) {
    unsigned long long wrong = 0;
    for (index_t at = elements::number(); at < from.size(); at += elements::count()) {
        wrong += from(at) != value + static_cast<unsigned>(at);
    }
    if (wrong > 0) atomicAdd(mismatches.data(), wrong);
}
