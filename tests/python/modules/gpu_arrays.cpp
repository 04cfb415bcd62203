// nanobind arrays with any device tag that the caller states, and a handle of an imported array.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;

// Keeps an imported array alive and reports its address.
struct Array {
    nb::ndarray<nb::ro> array;
};

template <typename T>
static nb::ndarray<nb::array_api, T> make(uintptr_t address, std::vector<size_t> shape, std::vector<int64_t> strides, int device, int id) {
    // An owner that does nothing: the memory lives as long as the program.
    nb::capsule owner(reinterpret_cast<void *>(&make<T>), [](void *) noexcept {});
    return nb::ndarray<nb::array_api, T>(reinterpret_cast<void *>(address), shape.size(), shape.data(), owner, strides.data(),
                          nb::dtype<float>(), device, id);
}

NB_MODULE(gpu_arrays, module) {
    nb::class_<Array>(module, "Array")
        .def("__init__", [](Array *self, nb::ndarray<nb::ro> array) { new (self) Array{std::move(array)}; })
        .def("address", [](const Array &self) { return reinterpret_cast<uintptr_t>(self.array.data()); })
        .def("device", [](const Array &self) { return nb::make_tuple(self.array.device_type(), self.array.device_id()); })
        .def("shape", [](const Array &self) {
            nb::list shape;
            for (size_t axis = 0; axis < self.array.ndim(); axis++) shape.append(self.array.shape(axis));
            return shape;
        });
    using Matrix = nb::ndarray<float, nb::ndim<2>, nb::device::cuda>;
    module.def("is_square", [](Matrix matrix) { return matrix.shape(0) == matrix.shape(1); });
    module.def("make", &make<float>);
    module.def("make_readonly", &make<const float>);
}
