"""Gives every case of the corpus to a consumer, in a process of its own, so that a crash is one failed test.

    pytest conformance --from-dlpack numpy:from_dlpack
    pytest conformance --from-cai numba.cuda:as_cuda_array

The consumer returns an array that exports what it has understood: by `__dlpack__`, or by `__cuda_array_interface__`
(a dict will do). A refused case that is legal is a skipped test, because no library has every type and device. A
copy has other addresses and strides, so its elements are compared.
"""

import ctypes
import functools
import gc
import importlib
import itertools
import json
import os
import signal

import pytest
from capsules import CPU, READ_ONLY, Producer, Tensor, name_of, numbers_at, release_attached, take
from reader import BEFORE, BEHIND, cai_facts, compact, read, value

LATEST = (1, 3)


class Refused(Exception):
    """The consumer raised an exception."""


class Invisible(Exception):
    """The result has no protocol that shows it."""


def fields(coded):
    """Decodes a dict of coded values."""
    return {key: value(item) for key, item in coded.items()}


def pytest_generate_tests(metafunc):
    file = {"dict_case": "cai.json", "tensor_case": "dlpack.json"}
    for name in file.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, [pytest.param(case, id=case["id"]) for case in read(file[name])])


def consumer(request, option):
    """The function that an option names."""
    given = request.config.getoption(option)
    if not given:
        pytest.skip(f"no {option}")
    module, _, names = given.partition(":")
    return functools.reduce(getattr, names.split("."), importlib.import_module(module))


def judge(case, check):
    """Runs `check` in a forked process. It returns what is wrong, or nothing."""
    gc.freeze()  # the child's collections are for what the child made
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            outcome = ("fail", check())
        except (Refused, Invisible) as error:
            outcome = ("skip", f"{type(error).__name__}: {error}")
        except BaseException as error:  # the parent must hear of anything
            outcome = ("fail", repr(error))
        os.write(writing, json.dumps([outcome[0], outcome[1][:600]]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    status = os.waitpid(child, 0)[1]
    if status or not told:
        how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"an exit status, {status >> 8}"
        pytest.fail(f"the consumer ended the process by {how}: {case['why']}")
    kind, text = json.loads(told)
    if kind == "skip" and "facts" in case:
        pytest.skip(text)
    if kind == "fail" and text:
        pytest.fail(f"{text}: {case['why']}")


def consume(function, given):
    try:
        return function(given)
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}"[:500]) from None


def differences(found, facts):
    """Returns what differs from the expected facts, except for what has no meaning."""
    wrong = [
        f"{key} {found[key]}, not {facts[key]}"
        for key in found.keys() & facts.keys()
        if key != "strides" and facts[key] is not None and found[key] != facts[key]
    ]
    if "strides" in found and any(known not in (None, step) for step, known in zip(found["strides"], facts["strides"])):
        wrong.append(f"strides {found['strides']}, not {facts['strides']}")
    return ", ".join(wrong)


# --- DLPack -------------------------------------------------------------------------------------------------------
def elements(start, shape, strides, size):
    """Returns the bytes of each element."""
    places = (sum(map(int.__mul__, index, strides)) for index in itertools.product(*map(range, shape)))
    return [ctypes.string_at(start + place * size, size) for place in places]


def exported(array):
    """Returns the capsule of a result, in the newest form that it has."""
    for wishes in ({"max_version": LATEST, "stream": -1}, {"max_version": LATEST}, {"stream": -1}, {}):
        try:
            return array.__dlpack__(**wishes)
        except Exception as error:  # an array on the host may refuse a stream, and an old library the version
            last = error
    raise Invisible(last)


def what_it_is(array, tensor, facts):
    """Returns how a result differs from the facts of a tensor."""
    capsule = exported(array)
    versioned = "versioned" in name_of(capsule)
    struct = take(capsule)
    view = struct.tensor
    shape = numbers_at(view.shape, view.ndim) or ()
    found = {
        "dtype": (view.code, view.bits, view.lanes),
        "shape": shape,
        "strides": numbers_at(view.strides, view.ndim) or compact(shape),
    }
    # A consumer may understand an array that may be written as read-only, but not the other way around.
    if versioned and facts["readonly"] and not struct.flags & READ_ONLY:
        found["readonly"] = False
    first, size = (view.data or 0) + view.byte_offset, view.bits * view.lanes // 8
    in_place = facts["offset"] is None or first == tensor.struct.tensor.data + facts["offset"]
    bits_differ = False
    if not in_place and facts["device"][0] == CPU and size and max(shape, default=0) < 1000:
        steps = [step or 0 for step in facts["strides"]]
        original = elements(tensor.memory + facts["offset"], facts["shape"], steps, size)
        bits_differ = elements(first, shape, found.pop("strides"), size) != original
    elif not in_place:
        bits_differ = True
    release_attached(struct)
    return differences(found, facts) or ("the elements are others" if bits_differ else "")


def released(tensor, wanted):
    """Returns whether the deleter has been called exactly as often as wanted, after Python has dropped unused objects."""
    gc.collect()
    return tensor.released == wanted


def test_from_dlpack(tensor_case, request):
    """Each tensor is understood in place and released once, or refused without being kept."""
    function = consumer(request, "--from-dlpack")
    given = fields(tensor_case["tensor"])
    form, data, deleter = given.pop("form"), given.pop("data"), given["deleter"]

    class Recorded(Producer):
        """A producer that gives its capsule once, as a consumer should ask."""

        def __dlpack__(self, **wishes):
            self.capsule = super().__dlpack__(**wishes)
            return self.capsule

    def check():
        tensor = Tensor(form, data=None if data == "memory" else data, **given)
        room = (ctypes.c_uint8 * (BEFORE + BEHIND)).from_address(tensor.memory - BEFORE)
        room[:] = [place * 7 % (2 if given["dtype"][0] == 6 else 128) for place in range(len(room))]
        producer = Recorded(tensor)
        try:
            array = consume(function, producer)
        except Refused:
            taken = "used" in name_of(producer.capsule) if producer.asked else False
            if not released(tensor, int(taken and deleter)):
                return f"refused, and released {tensor.released} times (taken: {taken})"
            raise
        if "error" in tensor_case:
            return "" if tensor_case.get("choice") else f"accepted, but {tensor_case['error']}"
        wrong = what_it_is(array, tensor, fields(tensor_case["facts"]))
        del array
        return wrong or ("" if released(tensor, int(deleter)) else f"released {tensor.released} times")

    judge(tensor_case, check)


# --- the CUDA Array Interface -------------------------------------------------------------------------------------
INVENTED = 65536  # the address in most cases
HANDLES = range(3, 2**64)  # other numbers of a stream have a meaning, or none


def real(given):
    """Replaces the invented address and stream of a dict by some of the driver's, if there is a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return given
    memory, stream, context = ctypes.c_uint64(0), ctypes.c_uint64(0), ctypes.c_void_p()
    driver.cuInit(0)
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.cuCtxPushCurrent_v2(context)
    driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(2 * INVENTED))
    driver.cuStreamCreate(ctypes.byref(stream), 1)
    driver.cuCtxPopCurrent_v2(ctypes.byref(context))
    data, number = given.get("data"), given.get("stream")
    if memory and isinstance(data, tuple) and data[:1] == (INVENTED,) and type(data[0]) is int:
        given["data"] = (memory.value + INVENTED, *data[1:])
    if stream and isinstance(number, int) and number in HANDLES:
        given["stream"] = stream.value
    return given


class Interface:
    def __init__(self, given):
        self.__cuda_array_interface__ = given


def test_from_cai(dict_case, request):
    """Each dict is understood, or refused."""
    function = consumer(request, "--from-cai")

    def check():
        given = real(fields(dict_case["dict"]))
        array = consume(function, Interface(given))
        if "error" in dict_case:
            return "" if dict_case.get("choice") else f"accepted, but {dict_case['error']}"
        facts = cai_facts(given)
        seen = array if isinstance(array, dict) else getattr(array, "__cuda_array_interface__", None)
        if seen is None:
            raise Invisible("the result has no __cuda_array_interface__")
        found = cai_facts({**seen, "stream": None})
        del found["stream"]
        if not facts["readonly"]:
            del found["readonly"]
        return differences(found, facts)

    judge(dict_case, check)
