"""What the libraries do not accept or do not have, each with the reason. All other cells of the matrix must pass.

A cell is named `partner direction protocol kind case stream`. `*` and `[abc]` match several, and the first matching
line counts. `in` is an array of the library that we import; `out` is one of ours that the library imports.
"""

from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version


def is_before(partner, *limit):
    """Returns whether the installed version of the library is older; true if it is not installed."""
    try:
        return tuple(map(int, version(partner).split(".")[: len(limit)])) < limit
    except PackageNotFoundError:
        return True


# Cells that cannot be tested, because the library has no such array.
LACKS = (
    ("torch out dlpack device negative *", "torch 2.11 ends the process over negative strides in a capsule"),
    ("torch out cai * negative *", "torch 2.11 ends the process over negative strides in a dict"),
    ("torch in * managed *", "torch allocates no managed memory"),
    ("torch in * * negative *", "torch has no negative strides"),
    ("torch in cai pinned *", "torch's pinned tensors have no interface dict"),
    ("cupy in * pinned *", "CuPy's pinned memory holds arrays of NumPy"),
    ("jax in * [mp]* *", "JAX's arrays are put into device memory"),
    ("jax in * * strided *", "JAX's arrays are compact: slices are copies, of which the other cases tell as much"),
    ("jax in * * negative *", "JAX's arrays are compact: slices are copies"),
    ("numba* in * managed *", "Numba's managed arrays are arrays of NumPy"),
    ("numba* in * * 0-d *", "Numba's indexing gives a scalar of NumPy"),
    ("numba* in * pinned *", "Numba's pinned arrays are arrays of NumPy"),
    ("warp in * managed *", "Warp's arrays are in device or pinned memory"),
    ("warp in * * negative *", "Warp's slices go forwards"),
    ("warp in * * 0-d *", "Warp's arrays have 1 to 4 axes"),
    ("warp in cai pinned *", "Warp's arrays in host memory have no interface dict"),
    ("cuda_core in * * [0ensr]* *", "a buffer is one run of bytes"),
    ("dali in * [mp]* * *", "DALI's TensorGPU is in device memory"),
    ("dali in * * [0ensr]* *", "DALI's tensors are dense and have no views"),
    ("tvm_ffi in * [mp]* * *", "TVM FFI makes no arrays; these are CuPy's, in device memory"),
    ("pycuda in * [mp]* * *", "gpuarrays are in device memory"),
    ("pycuda in * * [ns]* *", "gpuarrays with steps are not supported by PyCUDA"),
    ("jax in * * readonly *", "the same as the other cells: all arrays of JAX are read-only"),
    ("[!n]* in * * readonly *", "the library has no read-only arrays"),
    ("numba* in * * readonly *", "the library has no read-only arrays"),
)

# Cells that the library refuses: the class of its exception, a part of its message, and the reason.
REFUSALS = (
    # torch
    ("torch out dlpack pinned *", "BufferError|RuntimeError", "", "torch takes no kDLCUDAHost: `relabel_as_host()` is for it"),
    ("torch out dlpack managed *", "BufferError|RuntimeError", "", "torch takes no kDLCUDAManaged: `relabel_as_device()` is for it"),
    ("torch out cai * readonly *", "TypeError", "read.only", "torch has no read-only tensors"),
    # Numba
    ("numba* out cai * negative *", "NotImplementedError", "negative strides", "Numba copies no negative strides to the host"),
    # CuPy
    ("cupy out dlpack pinned *", "TypeError|BufferError", "", "CuPy takes CUDA and managed memory only"),
    (
        "cupy in dlpack * negative *",
        "ArrayError",
        "address space|strides",
        "CuPy writes negative strides as huge positive ones: it divides them without their sign",
    ),
    # TVM FFI
    ("tvm_ffi in dlpack * negative *", "ArrayError", "address space|strides", "these are CuPy's strides"),
    ("tvm_ffi out dlpack * readonly *", "*", "read.only", "TVM FFI asks for the legacy form"),
    # JAX
    ("jax out dlpack managed *", "*", "", "JAX takes CPU, pinned and CUDA memory"),
    ("jax out cai * [01]-d handle", "*", "GetStreamFromExternalStream", "JAX looks the stream of a dict up among its own"),
    ("jax out * * strided *", "*", "", "JAX's arrays are compact"),
    ("jax out * * negative *", "*", "", "JAX's arrays are compact"),
    *(
        [("jax out dlpack * readonly *", "BufferError|ArrayError", "read.only", "JAX asks for the legacy form before 0.12")]
        if is_before("jax", 0, 12)
        else []
    ),
    # Warp asks for the legacy form
    ("warp out dlpack * readonly *", "BufferError|ArrayError", "read.only", "Warp asks for the legacy form"),
    ("warp out * * 0-d *", "*", "", "Warp's arrays have 1 to 4 axes"),
    # DALI
    ("dali in cai *", "ArrayError", "typestr", "DALI writes the typestr `=f`, which has no size; its capsules are right"),
    ("dali out dlpack [mp]* *", "*", "", "TensorGPU takes device memory"),
    ("dali out * * strided *", "*", "", "DALI takes dense arrays"),
    ("dali out * * negative *", "*", "", "DALI takes dense arrays"),
    ("dali out dlpack * readonly *", "*", "", "DALI asks for the legacy form"),
)


def find(table, cell):
    return next((row for row in table if fnmatch(cell, row[0])), None)
