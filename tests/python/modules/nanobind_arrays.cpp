// The same as `handwritten.c`, as nanobind has it written.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace nb = nanobind;

using Matrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;

NB_MODULE(nanobind_arrays, module) {
    module.def("is_square", [](Matrix matrix) { return matrix.shape(0) == matrix.shape(1); });
    module.def("asarray", [](nb::ndarray<> array) { return array; });
}
