"""The life of capsules: names, consumers, and that each is released once (R59, R94, R107 to R112, bugs 20 to 31)."""

import contextlib
import ctypes
import gc
import sys
import threading

import interop_demo
import pytest
from capsules import NAMES, USED, Producer, Tensor, get_name, name_of, new_capsule, set_name
from scripts import run

ArrayError = interop_demo.ArrayError
FORMS = ("versioned", "legacy")

# Each function that imports its argument.
CONSUMERS = {
    "describe": interop_demo.describe,
    "asarray": interop_demo.asarray,
    "checksum": interop_demo.checksum,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_taken_once_released_once(form, consumer):
    """Bug 20: a capsule is renamed when it is consumed and released with the import; a second import is refused."""
    tensor = Tensor(form)
    tensor.floats(6)[:] = range(6)
    capsule = tensor.capsule()
    imported = CONSUMERS[consumer](capsule)
    assert get_name(capsule) == USED[form]
    assert tensor.released == (0 if consumer == "asarray" else 1)
    del imported
    assert tensor.released == 1
    for again in CONSUMERS.values():
        with pytest.raises(ArrayError, match="used_dltensor"):
            again(capsule)
    del capsule
    gc.collect()
    assert tensor.released == 1


@pytest.mark.parametrize("form", FORMS)
def test_never_taken(form):
    """A capsule that is not consumed is released by its producer."""
    tensor = Tensor(form)
    capsule = tensor.capsule()
    del capsule
    assert tensor.released == 0


@pytest.mark.parametrize(
    "name",
    [
        b"", b"dltensor_", b"dltensor_versioned_", b"DLTENSOR", b"used_dltensor", b"used_dltensor_versioned", b"foo",
        b"dlpack_exchange_api", b"\xff\xfe", b"x" * 4096, None,
    ],
    ids=lambda name: repr(name)[:30],
)
@pytest.mark.parametrize("way", ["capsule", "producer"])
def test_other_names(name, way):
    """Bug 142: the capsule is not consumed, read or renamed; its pointer is invalid."""
    capsule = new_capsule(8, ctypes.cast(name, ctypes.c_void_p) if name is not None else None, None)
    source = capsule
    if way == "producer":
        source = Producer(Tensor())
        source.__class__ = type("Strange", (Producer,), {"__dlpack__": lambda self, **wishes: capsule})
    # The message names the class whose `__dlpack__` returned it, because a call may have several array arguments.
    origin = {"capsule": "PyCapsule", "producer": "Strange"}[way]
    for consumer in CONSUMERS.values():
        with pytest.raises(ArrayError, match=rf"`capsule`.* \(from .*{origin}\)$") as refused:
            consumer(source)
        assert ("a capsule named NULL" in str(refused.value)) is (name is None), "what it is called is said"
    assert get_name(capsule) == name


@pytest.mark.parametrize("form", FORMS)
def test_the_name_decides_about_the_struct(form):
    """R110, bug 8: whatever was requested. A legacy capsule may answer max_version, and a versioned one no request at
    all.
    """
    tensor = Tensor(form)
    found = interop_demo.describe(Producer(tensor))
    assert found["protocol"] == {"versioned": "dlpack_versioned", "legacy": "dlpack"}[form]

    class Old(Producer):
        def __dlpack__(self):
            return self.tensor.capsule()

    tensor = Tensor(form)
    assert interop_demo.describe(Old(tensor))["protocol"] == found["protocol"]
    assert tensor.released == 1


def test_renamed_back():
    """Bug 29: a user who renames a capsule back has two imports of it; the first one is not affected."""
    tensor = Tensor(sealed=False)
    tensor.floats(6)[:] = range(6)
    capsule = tensor.capsule()
    first = interop_demo.asarray(capsule)
    set_name(capsule, NAMES["versioned"])
    set_name(capsule, USED["versioned"])
    assert interop_demo.checksum(first) == 15
    with pytest.raises(ArrayError):
        interop_demo.asarray(capsule)


def test_what_a_deleter_raises_is_told(monkeypatch):
    """An exception that a C deleter sets has no handler; a pending exception must not be lost."""
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: told.append(event.exc_type))
    tensor = Tensor(sealed=False)
    # Sets a TypeError, whatever its arguments.
    tensor.struct.deleter = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value
    interop_demo.describe(tensor.capsule())
    assert told == [TypeError]
    tensor.struct.tensor.ndim = -1
    for refused in (tensor.capsule(), Producer(tensor)):
        with pytest.raises(ArrayError, match="`ndim`"):
            interop_demo.describe(refused)
    assert told == [TypeError] * 3
    tensor.struct.tensor.ndim = 2
    with pytest.raises(KeyError, match="on its way"):
        for array in [interop_demo.asarray(tensor.capsule())]:
            kept = [array]
        del array
        try:
            raise KeyError("on its way")
        finally:
            kept.clear()
    assert told == [TypeError] * 4


@pytest.mark.parametrize("hosted", [False, True], ids=["any device", "host"])
@pytest.mark.parametrize("form", FORMS)
def test_what_a_destructor_raises_is_told(form, hosted, monkeypatch):
    """The same for the destructor of a returned capsule: the exception must not surface in another call."""
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda event: told.append(event.exc_type))
    tensor = Tensor(form, sealed=False)
    raises = ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p)
    name = ctypes.cast(NAMES[form], ctypes.c_void_p)
    # With NumPy's array interface the class is known to use host memory.
    members = {"__array_interface__": {}} if hosted else {}
    members["__dlpack__"] = lambda self, **_: new_capsule(self.tensor.address, name, raises)
    producer = type("Odd", (Producer,), members)(tensor)
    assert interop_demo.describe(producer)["shape"] == (2, 3)
    assert interop_demo.asarray(producer).shape == (2, 3)
    tensor.struct.tensor.ndim = -1
    with pytest.raises(ArrayError, match=r"`ndim`.*Odd"):
        interop_demo.describe(producer)
    assert (told, tensor.released) == ([TypeError] * 3, 3)


NO_CAPSULES = [None, 0, 1.5, "dltensor", (), [], {}, pytest.param(object(), id="object"), type, print, Ellipsis]


@pytest.mark.parametrize("value", NO_CAPSULES, ids=repr)
def test_no_capsule_at_all(value):
    """Bug 157: neither as an argument nor as the result of `__dlpack__`."""
    for consumer in CONSUMERS.values():
        with pytest.raises(TypeError):
            consumer(value)

    class Wrong(Producer):
        def __dlpack__(self, **wishes):
            return value

    with pytest.raises(TypeError, match=r"`capsule`.* \(from .*Wrong\)$"):
        interop_demo.describe(Wrong(Tensor()))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("consume", "fields", "error"),
    [
        pytest.param(
            lambda c: interop_demo.scale_(c, 2.0), {"strides": (0, 0), "flags": 0}, ArrayError, id="scale-overlapping"
        ),
        pytest.param(lambda c: interop_demo.scale_(c, 2.0), {"dtype": (6, 8, 1)}, ArrayError, id="scale-bool"),
        pytest.param(lambda c: interop_demo.scale_(c, 2.0), {"device": (2, 0)}, ArrayError, id="scale-cuda"),
        pytest.param(lambda c: interop_demo.scale_(c, "two"), {}, TypeError, id="scale-by-a-text"),
        pytest.param(interop_demo.checksum, {"dtype": (5, 64, 1)}, ArrayError, id="checksum-complex"),
        pytest.param(interop_demo.checksum, {"dtype": (17, 4, 1)}, ArrayError, id="checksum-4-bits"),
        pytest.param(interop_demo.checksum, {"device": (2, 1), "data": 0x1000}, ArrayError, id="checksum-cuda"),
        pytest.param(lambda c: interop_demo.describe(c, stream=0), {}, ArrayError, id="stream-0"),
        pytest.param(lambda c: interop_demo.describe(c, stream="s"), {}, TypeError, id="stream-text"),
        pytest.param(lambda c: interop_demo.describe(c, strean=1), {}, TypeError, id="wrong-keyword"),
    ],
)
def test_errors_half_way(form, consume, fields, error):
    """Bug 22: released once if an import fails, not at all if the capsule was not consumed."""
    if form == "legacy":
        fields = {key: value for key, value in fields.items() if key != "flags"}
    tensor = Tensor(form, **fields)
    capsule = tensor.capsule()
    with pytest.raises(error):
        consume(capsule)
    assert tensor.released == (1 if get_name(capsule) == USED[form] else 0)
    if tensor.released == 0:
        interop_demo.describe(capsule)
        assert tensor.released == 1


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "fields",
    [{"shape": (0,), "strides": (1,)}, {"shape": (3, 0, 2), "strides": None, "data": 0}],
    ids=["empty", "empty-null"],
)
def test_empty_tensors_are_released(form, fields):
    """Bug 25."""
    tensor = Tensor(form, **fields)
    array = interop_demo.asarray(tensor.capsule())
    assert tensor.released == 0
    del array
    assert tensor.released == 1


@pytest.mark.parametrize("form", FORMS)
def test_an_import_that_is_exported_again(form):
    """The producer's struct lives until the last object that was derived from it is dropped."""
    tensor = Tensor(form)
    tensor.floats(6)[:] = range(6)
    array = interop_demo.asarray(tensor.capsule())
    view = array[1:, ::2]
    again = interop_demo.asarray(view)
    capsule = again.__dlpack__(max_version=(1, 0))
    del array, view, again
    assert tensor.released == 0
    assert interop_demo.checksum(capsule) == 3 + 5
    assert tensor.released == 1
    assert name_of(capsule) == "used_dltensor_versioned"


def test_no_deleter():
    """R92, bug 24."""
    for form in FORMS:
        tensor = Tensor(form, deleter=False)
        array = interop_demo.asarray(tensor.capsule())
        view = array[0]
        del array
        assert interop_demo.describe(view)["shape"] == (3,)
        with pytest.raises(ArrayError):
            interop_demo.describe(Tensor(form, deleter=False, ndim=-1).capsule())


@pytest.mark.parametrize("major", [0, 2, 3, 2**32 - 1])
def test_another_major_version(major):
    """R59, bug 147: only the deleter is called; a struct of version 2 may end after it."""
    out = run(
        f"""
        import ctypes
        import interop_demo
        from capsules import NAMES, PAGE, PROT_READ, Pages, count_release, new_capsule, Tensor

        class Torso:
            released = 0

        pages = Pages()
        address = pages.start + PAGE - 24        # version, context and deleter; the flags would be on the next page
        (ctypes.c_uint32 * 2).from_address(address)[:] = [{major}, 0]
        ctypes.c_void_p.from_address(address + 16).value = ctypes.cast(count_release, ctypes.c_void_p).value
        pages.protect()
        Tensor.alive[address] = torso = Torso()
        capsule = new_capsule(address, ctypes.cast(NAMES["versioned"], ctypes.c_void_p), None)
        try:
            interop_demo.describe(capsule)
        except interop_demo.ArrayError as error:
            print(torso.released, error)
        """
    )
    assert out.startswith(f"1 `version`: found DLPack {major}.0, allowed: major version 1")


@pytest.mark.parametrize("form", FORMS)
def test_a_hidden_struct_is_not_read_before_it_is_taken(form):
    """The memory of a capsule with another name is inaccessible."""
    run(
        f"""
        import ctypes, interop_demo
        from capsules import PAGE, PROT_NONE, Tensor
        tensor = Tensor("{form}", sealed=False)
        capsule = tensor.capsule(b"something_else")
        tensor.pages.protect(PROT_NONE)
        try:
            interop_demo.describe(capsule)
        except interop_demo.ArrayError:
            pass
        else:
            raise SystemExit("taken")
        """
    )


@pytest.mark.parametrize("form", FORMS)
def test_the_struct_is_copied_out(form):
    """Bug 31: after the import only the deleter of the struct is used."""
    tensor = Tensor(form, sealed=False)
    tensor.floats(6)[:] = range(6)
    array = interop_demo.asarray(tensor.capsule())
    before = interop_demo.describe(array)
    inner = tensor.struct.tensor
    inner.data, inner.shape, inner.strides, inner.ndim, inner.code, inner.byte_offset = 8, 8, 8, -5, 99, 2**63
    assert interop_demo.describe(array) == before
    assert interop_demo.checksum(array) == 15
    del array
    assert tensor.released == 1


def consume(capsule, start, taken):
    """Consumes the capsule when all threads are ready, unless another thread was faster."""
    start.wait()
    with contextlib.suppress(ArrayError):
        taken.append(interop_demo.asarray(capsule))


@pytest.mark.parametrize("form", FORMS)
def test_many_threads_and_one_capsule(form):
    """Only one thread can consume it."""
    for _ in range(50):
        tensor = Tensor(form)
        capsule = tensor.capsule()
        start, taken = threading.Barrier(4), []
        threads = [threading.Thread(target=consume, args=(capsule, start, taken)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) == 1
        assert tensor.released == 0
        taken.clear()
        assert tensor.released == 1
