// What C++ sees through the bytes of a view. Reads from standard input: the rank, the address that the memory has in the
// program that made the view, the number of values, the values, the bytes of the view. Prints the size and contiguity,
// then a line for each element, in row-major order: its value and its indices.

#include "interop.cuh"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

void read_bytes(void* to, size_t bytes) {
    // Reading past the end would print old values and look right.
    if (std::fread(to, 1, bytes, stdin) != bytes) std::exit(3);
}

template <int N>
int element_by_indices(const interop::view<const int, N>& view, const long long (&at)[N > 0 ? N : 1]) {
    if constexpr (N == 0) return view();
    else if constexpr (N == 1) return view(at[0]);
    else if constexpr (N == 2) return view(at[0], at[1]);
    else if constexpr (N == 3) return view(at[0], at[1], at[2]);
    else return view(at[0], at[1], at[2], at[3]);
}

template <int N>
int look(unsigned long long address, std::vector<int>& values) {
    interop::view<int, N> writable;
    read_bytes(&writable, sizeof writable);
    // The same place in the memory of this program.
    const auto distance = static_cast<long long>(reinterpret_cast<unsigned long long>(writable.data_) - address);
    writable.data_ = writable.data_ == nullptr ? nullptr : values.data() + distance / 4;
    const interop::view<const int, N> view = writable.as_const();

    std::printf("size %lld contiguous %d\n", view.size(), view.is_contiguous());
    for (long long number = 0; number < view.size(); ++number) {
        long long at[N > 0 ? N : 1];
        view.indices_of(number, at);
        const int value = element_by_indices<N>(view, at);
        // The ways to one element agree.
        if (&view[number] != view.data() + view.offset_of(number) || view[number] != value) return 4;
        if (view.is_contiguous() && view.data()[number] != value) return 5;
        std::printf("%d", value);
        for (int axis = 0; axis < N; ++axis) std::printf(" %lld", at[axis]);
        std::printf("\n");
    }
    return 0;
}

}  // namespace

int main() {
    unsigned long long head[3];
    read_bytes(head, sizeof head);
    std::vector<int> values(head[2]);
    read_bytes(values.data(), values.size() * sizeof(int));
    switch (head[0]) {
        case 0: return look<0>(head[1], values);
        case 1: return look<1>(head[1], values);
        case 2: return look<2>(head[1], values);
        case 3: return look<3>(head[1], values);
        case 4: return look<4>(head[1], values);
        default: return 6;
    }
}
