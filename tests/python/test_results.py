"""Results as arrays of a library: by name, of the argument's type, in memory of the caller's library."""

import contextlib
import gc
import sys
import types

import interop_demo
import native
import numpy as np
import pytest
from capsules import READ_ONLY, Producer, Tensor
from fake_library import library
from scripts import run

Array, ArrayError = interop_demo.Array, interop_demo.ArrayError
twice = interop_demo.twice
BASE = np.arange(24.0).reshape(4, 6)


@contextlib.contextmanager
def held(exports, allocations=None):
    """Checks that this many more exports and allocations are alive at the end of the block, and none after it."""
    gc.collect()
    before = interop_demo.live_exports(), interop_demo.live_allocations()
    yield
    gc.collect()
    assert interop_demo.live_exports() - before[0] == exports
    if allocations is not None:
        assert interop_demo.live_allocations() - before[1] == allocations


def locked(array):
    array.flags.writeable = False
    return array


# NumPy in, NumPy out.


@pytest.mark.parametrize(
    "array",
    [
        BASE, BASE[1:, ::2], BASE[::-1, ::-3], BASE.T, np.broadcast_to(BASE[0], (3, 6)), locked(BASE.copy()),
        np.array(5.0), np.zeros((0, 3)), np.zeros(0, np.int8), np.arange(7)[3:3], np.arange(2.0**12).reshape((2,) * 12),
    ],
    ids=["plain", "strided", "backwards", "transposed", "broadcast", "readonly", "0-d", "empty", "int8", "cut", "12-d"],
)
def test_twice_of_numpy(array):
    result = twice(array)
    assert type(result) is np.ndarray
    assert (result.dtype, result.shape) == (array.dtype, array.shape)
    assert np.array_equal(result, array * 2)
    assert result.flags.writeable and result.flags.aligned and result.flags.c_contiguous
    assert not np.shares_memory(result, array)


@pytest.mark.parametrize("dtype", list("bhilqBHILQefdFD"))
def test_twice_of_each_type(dtype):
    array = np.arange(5).astype(dtype)
    result = twice(array)
    assert result.dtype == array.dtype and np.array_equal(result, array * 2)


def test_integers_stay_within_their_range():
    assert twice(np.array([100, -100, 3], np.int8)).tolist() == [127, -128, 6]
    assert twice(np.array([200, 3], np.uint8)).tolist() == [255, 6]


def test_twice_of_structs():
    array = np.array([(1, (2.0, 3.0)), (4, (5.0, 6.0))], [("count", "i2"), ("place", "f4", (2,))])
    for source in (array, array[::-1], array[0:0], array.reshape(2, 1)):
        result = twice(source)
        assert result.dtype == source.dtype and result.shape == source.shape
        assert np.array_equal(result["count"], source["count"] * 2)
        assert np.array_equal(result["place"], source["place"] * 2)


def test_what_has_no_double():
    with pytest.raises(ArrayError, match="found bool, allowed: integers"):
        twice(np.zeros(2, bool))
    with pytest.raises(TypeError, match="numpy.asarray"):
        twice([1, 2])


def test_a_subclass_of_numpy_gives_plain_arrays():
    class Own(np.ndarray):
        pass

    assert type(twice(BASE.view(Own))) is np.ndarray
    assert type(twice(np.ma.masked_array(BASE))) is np.ndarray


def test_numpy_keeps_the_memory():
    with held(exports=0):
        array = Array.full((2, 3), 1.5)
        with held(exports=2):
            seen = interop_demo._as_numpy(array)
            assert seen.__array_interface__["data"][0] == interop_demo.describe(array)["data"]
            again = seen[1:, ::-1]
            del seen
        assert again.tolist() == [[1.5, 1.5, 1.5]]
        del array, again


@pytest.mark.parametrize("dtype", ["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"])
@pytest.mark.parametrize("key", [(), (slice(None, None, -1), slice(1, None, 2)), (0, 0), (slice(0, 0),)], ids=repr)
def test_views_of_ours_as_numpy(dtype, key):
    array = Array.full((3, 4), 1, dtype)[key]
    seen = interop_demo._as_numpy(array)
    other = np.asarray(array)
    assert (seen.dtype, seen.shape, seen.tolist()) == (other.dtype, other.shape, other.tolist())
    assert seen.size == 0 or (seen.strides, seen.ctypes.data) == (other.strides, other.ctypes.data)


def test_read_only_stays_read_only():
    seen = interop_demo._as_numpy(Array.full((2,), 1.0, readonly=True))
    assert not seen.flags.writeable
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        seen.flags.writeable = True
    alone, shared = interop_demo._vectors()
    assert alone.flags.writeable and not shared.flags.writeable


def test_flags_of_a_plain_vector_are_read_only():
    """The drop of the Rust vector may read them, and NumPy may write a byte that is no bool."""
    ours, plain = interop_demo._flags()
    assert ours.flags.writeable and not plain.flags.writeable
    assert (ours.dtype, ours.tolist(), plain.tolist()) == (np.bool_, [True, False], [True, False])


def test_structs_as_numpy():
    points = interop_demo._points()
    assert points.dtype == np.dtype([("label", "i4"), ("place", "f4", (3,))])
    assert points["label"].tolist() == [1, 2] and points["place"][0].tolist() == [0.5, 1.5, 2.5]
    points["label"] = 3
    assert points["label"].tolist() == [3, 3]


def test_results_in_containers():
    one, several, named, maybe = interop_demo._in_containers(True)
    for array in (one, *several, named["key"], maybe):
        assert type(array) is np.ndarray and array.tolist() == [1, 2]
    assert len(several) == 2 and interop_demo._in_containers(False)[3] is None


def test_types_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    seen = interop_demo._as_numpy(Array.full((2,), 1, "bfloat16"))
    assert seen.dtype == ml_dtypes.bfloat16 and seen.astype("f4").tolist() == [1, 1]


def test_bfloat16_without_ml_dtypes():
    run("""
import sys
sys.modules["ml_dtypes"] = None
import interop_demo
array = interop_demo.Array.full((2,), 1, "bfloat16")
try:
    interop_demo._as_numpy(array)
except BufferError as error:
    assert "bfloat16" in str(error) and "ml_dtypes" in str(error) and "PyTorch" in str(error), error
else:
    raise AssertionError("NumPy has bfloat16")
del array, error
assert (interop_demo.live_exports(), interop_demo.live_allocations()) == (0, 0)
""".replace(", error\nassert", "\nassert"))


# Other installed libraries.


def test_jax(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    jax = pytest.importorskip("jax")
    source = jax.numpy.arange(6, dtype="float32").reshape(2, 3)
    result = twice(source)
    assert isinstance(result, jax.Array) and result.tolist() == [[0, 2, 4], [6, 8, 10]]
    assert isinstance(interop_demo._doubled(source), jax.Array)
    assert isinstance(interop_demo._as_jax(np.zeros(3)), jax.Array)
    # JAX cannot allocate memory that Rust may write.
    ones = interop_demo._ones_like(source)
    assert isinstance(ones, jax.Array) and ones.tolist() == [[1.0] * 3] * 2


def test_tvm_ffi():
    tvm_ffi = pytest.importorskip("tvm_ffi")
    source = tvm_ffi.from_dlpack(Array.full((2, 3), 1.5))
    for function in (twice, interop_demo._doubled):
        result = function(source)
        assert type(result) is type(source) and tuple(result.shape) == (2, 3)
        assert np.from_dlpack(result).tolist() == [[3, 3, 3], [3, 3, 3]]
    assert np.from_dlpack(interop_demo._ones_like(source)).tolist() == [[1] * 3] * 2


def test_warp_is_written_and_gets_arrays_of_its_own():
    """Its capsules cannot state that they may be written; its interface dict can."""
    warp = pytest.importorskip("warp")
    warp.config.quiet = True
    source = warp.array([1.0, 2.0], dtype=warp.float32, device="cpu")
    assert interop_demo.describe(source)["protocol"] == "dlpack"
    interop_demo.scale_(source, 2)
    assert source.numpy().tolist() == [2, 4]
    result = twice(source)
    assert type(result) is type(source) and result.numpy().tolist() == [4, 8]


def test_the_namespace_of_the_standard():
    strict = pytest.importorskip("array_api_strict")
    result = twice(strict.asarray([1.0, 2.0]))
    assert type(result) is type(strict.asarray(1.0)) and np.asarray(result).tolist() == [2, 4]


# Classes of the caller's own.


def test_arrays_of_this_module():
    result = twice(Array.full((2, 2), 1.5)[::-1])
    assert type(result) is Array and np.asarray(result).tolist() == [[3, 3], [3, 3]]
    assert type(interop_demo._as_it_came(Array.full((2,), 1.0))).__name__ == "ExportedArray"


def test_a_class_without_a_way_in():
    result = twice(Producer(Tensor()))
    assert type(result).__name__ == "ExportedArray" and result.shape == (2, 3)


def test_a_class_with_from_dlpack():
    class Own(Producer):
        @classmethod
        def from_dlpack(cls, array):
            own = cls(Tensor())
            own.array = np.from_dlpack(array)
            return own

    source = Own(Tensor())
    source.tensor.floats(6)[:] = range(6)
    result = twice(source)
    assert type(result) is Own and result.array.tolist() == [[0, 2, 4], [6, 8, 10]]


def test_a_class_that_returns_results_while_it_is_looked_at():
    """In a process of its own, because a wait for itself would never end."""
    output = run(
        """
        import interop_demo
        import numpy as np

        class Own:
            def __dlpack_device__(self):
                return (1, 0)

            def __dlpack__(self, **arguments):
                return np.ones(2, "f4").__dlpack__(**arguments)

            def __array_namespace__(self, api_version=None):
                if nested:
                    nested.pop()
                    print(type(interop_demo.twice(Own())).__name__)
                return np

        nested = [True]
        print(type(interop_demo.twice(Own())).__name__)
        """
    )
    assert output.split() == ["ndarray", "ndarray"]


@pytest.mark.parametrize(("error", "passed_on"), [(KeyboardInterrupt, True), (ValueError, False)])
def test_a_metaclass_that_hides_the_bases(error, passed_on):
    class Hiding(type):
        def __getattribute__(cls, name):
            if name == "__mro__" and raising:
                raise error
            return super().__getattribute__(name)

    class Own(Producer, metaclass=Hiding):
        pass

    raising = []
    source = Own(Tensor())
    interop_demo.is_square(source)
    raising.append(True)
    if passed_on:
        with pytest.raises(error):
            twice(source)
    else:
        assert type(twice(source)).__name__ == "ExportedArray"


def test_a_class_with_from_dlpack_is_not_kept_alive():
    def once():
        class Own(Producer):
            memory = Array.full((1000,), 1)
            from_dlpack = staticmethod(np.from_dlpack)

        assert type(twice(Own(Tensor()))) is np.ndarray

    with held(exports=0, allocations=0):
        for _ in range(10):
            once()


def test_a_from_dlpack_that_raises_leaves_nothing():
    class Own(Producer):
        @classmethod
        def from_dlpack(cls, array):
            raise RuntimeError(f"not {array.shape}")

    with held(exports=0, allocations=0):
        try:
            twice(Own(Tensor()))
        except RuntimeError as error:
            assert str(error) == "not (2, 3)"  # noqa: PT017
        else:
            pytest.fail("it raised nothing")


# Libraries with an exchange table.


@pytest.mark.parametrize("module", ["fake", "torch"])
def test_the_table_makes_the_result(module):
    Kind = library(module=module)
    result = twice(Kind(Array.full((2, 3), 1.5)))
    assert type(result) is Kind and np.asarray(result.array).tolist() == [[3, 3, 3], [3, 3, 3]]
    assert Kind.notes == ["from", "to"]


def test_a_subclass_with_a_method_of_its_own_is_not_made_by_the_table():
    Kind = library()
    Below = type("Below", (Kind,), {"__dlpack__": lambda self, **wishes: self.array.__dlpack__(**wishes)})
    Below.__dlpack_device__ = lambda self: (1, 0)
    assert type(twice(Below(Array.full((2,), 1.0)))).__name__ == "ExportedArray"


@pytest.fixture(scope="module")
def raising():
    return native.required("raising_table")


@pytest.mark.parametrize("fails, left", [("releases", 0), ("later", 1)])
def test_a_table_that_raises_leaves_the_result_released_once(raising, fails, left):
    """Its library may have released the tensor, or may release it later. The memory is freed at once, and a tensor that
    the library has is counted until it is released."""
    Kind = library(fails=getattr(raising, fails))
    source = Kind(Array.full((2, 3), 1.5))
    for _ in range(3):
        with held(exports=left, allocations=0), pytest.raises(RuntimeError, match="no tensor today"):
            interop_demo._doubled(source)
        with held(exports=-left, allocations=0):
            raising.release_left()


def test_an_allocator_that_is_interrupted(raising):
    """It succeeds with an exception set. The deleter of its tensor runs without that exception."""
    source = library(addresses={"allocator": raising.allocate})(Array.full((2, 3), 1.5))
    with pytest.raises(KeyboardInterrupt, match="not now"):
        interop_demo._ones_like(source)
    assert raising.times_deleted() == 1


def test_a_table_that_fails_without_a_word():
    Kind = library(fails="silent")
    source = Kind(Array.full((2, 3), 1.5))
    with held(exports=0, allocations=0), pytest.raises(SystemError, match="raised no exception"):
        interop_demo._doubled(source)


def test_an_allocator_that_fails_without_a_word():
    """Rust allocates the memory."""
    Kind = library(refuses="silent")
    result = interop_demo._ones_like(Kind(Array.full((2, 3), 1.5)))
    assert type(result) is Kind and np.asarray(result.array).tolist() == [[1] * 3] * 2


def test_new_memory_is_the_library_s():
    Kind = library()
    source = Kind(Array.full((2, 3), 1.5))
    result = interop_demo._ones_like(source)
    assert type(result) is Kind and np.asarray(result.array).tolist() == [[1] * 3] * 2
    assert Kind.notes == ["from", ("allocate", (2, 3), (2, 32), (1, 0)), "to", "from"]


def test_without_an_allocator_the_memory_is_rust_s():
    Kind = library(allocator=False)
    result = interop_demo._ones_like(Kind(Array.full((2, 3), 1.5)))
    assert type(result) is Kind and np.asarray(result.array).tolist() == [[1] * 3] * 2


@pytest.mark.parametrize(
    ("refuses", "error", "text"),
    [
        ((b"MemoryError", b"all used up"), MemoryError, "all used up"),
        ((b"NoSuchError", b"for a reason"), RuntimeError, "for a reason"),
        ((b"print", b"no class"), RuntimeError, "no class"),
        ((None, b"no name"), RuntimeError, "no name"),
    ],
)
def test_an_allocator_that_refuses(refuses, error, text):
    Kind = library(refuses=refuses)
    with held(exports=0, allocations=1):
        source = Kind(Array.full((2, 3), 1.5))
        with pytest.raises(error, match=text):
            interop_demo._ones_like(source)
    del source


def test_new_memory_of_numpy():
    ones = interop_demo._ones_like(BASE.astype("f4"))
    assert type(ones) is np.ndarray and ones.flags.owndata and ones.flags.writeable
    assert ones.tolist() == np.ones((4, 6)).tolist()
    assert interop_demo._ones_like(np.zeros((0, 3), "f4")).shape == (0, 3)


# Libraries by name.


@pytest.mark.parametrize(
    ("function", "module", "name"),
    [("_as_torch", "torch", "PyTorch"), ("_as_cupy", "cupy", "CuPy"), ("_as_jax", "jax.dlpack", "JAX")],
)
def test_a_library_that_is_not_installed(monkeypatch, function, module, name):
    monkeypatch.setitem(sys.modules, module, None)
    with held(exports=0), pytest.raises(ImportError) as caught:
        getattr(interop_demo, function)(np.zeros(3))
    text = str(caught.value)
    assert f"found no module `{module}`, allowed: an installed {name}" in text and "`python::NumPy`" in text
    caught.value.__traceback__ = None


def torch_with(**options):
    """A module with the tensors of a fake library."""
    module = types.ModuleType("torch")
    module.Tensor = library(module="torch", **options)
    return module


def test_pytorch_by_name(monkeypatch):
    for torch in (torch_with(), torch_with()):
        monkeypatch.setitem(sys.modules, "torch", torch)
        result = interop_demo._as_torch(BASE)
        assert type(result) is torch.Tensor and np.asarray(result.array).tolist() == BASE.tolist()
        assert torch.Tensor.notes == ["to"]


def test_pytorch_before_it_had_a_table(monkeypatch):
    torch = types.ModuleType("torch")
    torch.Tensor, torch.from_dlpack = type("Tensor", (), {}), np.from_dlpack
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert interop_demo._as_torch(BASE).tolist() == BASE.tolist()


@pytest.mark.parametrize("name", ["_as_torch", "_as_cupy"])
def test_libraries_that_know_no_read_only_arrays(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "torch", torch_with())
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    with pytest.raises(ArrayError, match="found a read-only array, allowed: a writable array.* return a copy"):
        getattr(interop_demo, name)(locked(BASE.copy()))


def test_pytorch_gets_nothing_that_goes_backwards(monkeypatch):
    """PyTorch up to 2.11 ends the process on negative strides."""
    monkeypatch.setitem(sys.modules, "torch", torch_with())
    for array in (BASE[::-1], BASE[:, ::-2]):
        with pytest.raises(ArrayError, match=r"`strides\[[01]\]`: found -\d, allowed: 0 and up, .* return a copy"):
            interop_demo._as_torch(array)
    assert np.asarray(interop_demo._as_torch(BASE[:1][::-1]).array).tolist() == BASE[:1].tolist()


def test_cupy_is_for_memory_of_devices(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    with pytest.raises(ArrayError, match=r"found CPU \(1\), .* return `python::NumPy`"):
        interop_demo._as_cupy(BASE)


# The mutability of legacy capsules.


def legacy(interface, **fields):
    """A producer of a legacy capsule whose class also has this interface dict of the tensor."""
    tensor = Tensor("legacy", **fields)
    members = {name: property(lambda self, data=data: {"data": data(tensor)}) for name, data in interface.items()}
    return type("Odd", (Producer,), members)(tensor)


@pytest.mark.parametrize(
    ("interface", "writable"),
    [
        ({"__cuda_array_interface__": lambda tensor: (tensor.memory, False)}, True),
        ({"__cuda_array_interface__": lambda tensor: (tensor.memory, True)}, False),
        ({"__cuda_array_interface__": lambda tensor: (tensor.memory + 4, False)}, False),
        ({"__cuda_array_interface__": lambda tensor: (None, False)}, False),
        ({"__cuda_array_interface__": lambda tensor: 1 // 0}, False),
        ({}, False),
    ],
    ids=["writable", "readonly", "elsewhere", "nowhere", "raises", "none"],
)
def test_the_interface_of_a_legacy_capsule_is_believed(interface, writable):
    producer = legacy(interface)
    facts = interop_demo.describe(producer)
    assert (facts["protocol"], facts["readonly"]) == ("dlpack", not writable)
    if writable:
        producer.tensor.floats(6)[:] = range(6)
        interop_demo.scale_(producer, 2)
        assert list(producer.tensor.floats(6)) == [0, 2, 4, 6, 8, 10]


def test_an_interface_says_nothing_about_a_versioned_capsule():
    tensor = Tensor(flags=READ_ONLY)
    members = {"__cuda_array_interface__": property(lambda self: {"data": (tensor.memory, False)})}
    assert interop_demo.describe(type("Odd", (Producer,), members)(tensor))["readonly"]


def test_arrays_of_jax_are_never_written():
    producer = legacy({"__cuda_array_interface__": lambda tensor: (tensor.memory, False)})
    type(producer).__module__ = "jaxlib.own"
    assert interop_demo.describe(producer)["readonly"]


