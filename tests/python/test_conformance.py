"""The published corpus in `tests/conformance/`: each case is imported, and those in host memory are passed on to NumPy and
JAX.

`tests/conformance/reader.py` describes the format of a case. For a refused case the error's class and location are
compared.
"""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import interop_demo
import numpy as np
import pytest
import reader
from capsules import CPU, Producer, Tensor
from reader import BEFORE, BEHIND, read, value

CORPUS = Path(reader.HERE)

ArrayError = interop_demo.ArrayError
PROTOCOLS = {"versioned": "dlpack_versioned", "legacy": "dlpack"}
BOOL = 6
KINDS_OF_NUMPY = {0: "i", 1: "u", 2: "f", 5: "c", BOOL: "?"}


def cases(name):
    """Returns the cases of a file as parameters."""
    return [pytest.param(case, id=case["id"]) for case in read(name)]


def fields(coded):
    """Decodes a dict of coded values."""
    return {key: value(item) for key, item in coded.items()}


def assert_refused(error, call):
    """Checks that the error has the class of its kind and names the location. Returns its text."""
    expected = TypeError if error["kind"] == "type" else ArrayError
    # The location names single entries of `descr`.
    end = "" if error["place"] == "descr" else "`"
    with pytest.raises(expected, match=re.escape(f"`{error['place']}{end}")) as caught:
        call()
    assert caught.type is expected
    return str(caught.value)


def assert_facts(found, facts, **others):
    """Compares the result with the expected description, except for strides without a meaning."""
    strides = zip(found["strides"], facts["strides"], strict=True)
    assert all(known in (None, step) for step, known in strides), (found["strides"], facts["strides"])
    expected = {"shape": facts["shape"], "nbytes": facts["nbytes"], "readonly": facts["readonly"], **others}
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("arguments", [["reader.py"], ["generate.py", "--check"]], ids=lambda words: words[0])
def test_the_corpus_is_well_formed_and_what_its_tables_say(arguments):
    done = subprocess.run(
        [sys.executable, "-S", *arguments], cwd=CORPUS, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="each case runs in a forked process")
@pytest.mark.parametrize(
    "consumer, words, outcome",
    [
        ("--from-dlpack=interop_demo:asarray", "null or strides or flags", " passed"),
        ("--from-cai=interop_demo:asarray", "data or stream or readonly", " passed"),
        ("--from-dlpack=numpy:from_dlpack", "shape-null-versioned", "the consumer ended the process by "),
        ("--from-dlpack=builtins:id", "plain-versioned", "Invisible: 'int' object has no attribute '__dlpack__'"),
        ("--from-dlpack=builtins:id", "ndim-lowest", "2 failed"),
    ],
)
def test_the_tests_for_any_consumer(consumer, words, outcome):
    """They pass with our library, survive a crash, and tell a refusal from an acceptance."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "-q", str(CORPUS), consumer, "-k", words]
    folders = os.pathsep.join(filter(None, [str(Path(interop_demo.__file__).parent), os.environ.get("PYTHONPATH")]))
    driver = CORPUS.parent / "target/sim/lib64"
    environment = {**os.environ, "PYTHONPATH": folders, "LD_LIBRARY_PATH": str(driver)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert outcome in done.stdout, done.stdout + done.stderr
    assert (done.returncode == 0) == ("failed" not in outcome and "ended" not in outcome), done.stdout


@pytest.mark.parametrize("case", cases("cai.json"))
def test_dicts(case):
    given = fields(case["dict"])
    if "error" in case:
        assert_refused(case["error"], lambda: interop_demo.parse_cai(given))
        return
    facts = fields(case["facts"])
    assert_facts(
        interop_demo.parse_cai(given),
        facts,
        protocol="cai",
        dtype=facts["typestr"],
        data=facts["data"] or 0,
        stream=facts["stream"],
        device=None,
    )


def tensor_of(case):
    """The struct of a case."""
    given = fields(case["tensor"])
    data = given.pop("data")
    return Tensor(given.pop("form"), data=None if data == "memory" else data, **given)


@pytest.mark.parametrize("way", ["capsule", "producer"])
@pytest.mark.parametrize("case", cases("dlpack.json"))
def test_tensors(case, way):
    """Each is released once, unless its deleter is null, or its producer is not asked because of its device."""
    tensor, released = tensor_of(case), case["tensor"]["deleter"]
    if case["id"] == "version-2.0-garbage":
        tensor.device = (CPU, 0)  # what its producer states
    given = tensor.capsule() if way == "capsule" else Producer(tensor)
    if "error" in case:
        words = assert_refused(case["error"], lambda: interop_demo.describe(given))
        assert ("Producer" in words) == (way == "producer"), "a producer is named, a capsule cannot be"
        released = released and (way == "capsule" or case["error"]["kind"] != "device")
    else:
        facts = fields(case["facts"])
        kind, ordinal = facts["device"]
        data = tensor.memory if case["tensor"]["data"] == "memory" else fields(case["tensor"])["data"]
        # The legacy form cannot state whether an array may be written; here it counts as read-only.
        facts["readonly"] = facts["readonly"] is not False
        assert_facts(
            interop_demo.describe(given),
            facts,
            protocol=PROTOCOLS[tensor.form],
            device=(kind, ordinal or 0),
            data=0 if facts["offset"] is None else data + facts["offset"],
            # A producer is passed the legacy default stream, which is also the meaning of no stream.
            stream=None if kind == CPU else 1,
        )
    assert tensor.released == int(released)


def elements_of(tensor, facts):
    """The elements as NumPy reads them from memory, without any protocol."""
    code, bits, _ = facts["dtype"]
    dtype = np.dtype("?" if code == 6 else f"{KINDS_OF_NUMPY[code]}{bits // 8}")
    if facts["offset"] is None:
        return np.empty(facts["shape"], dtype)
    # NumPy also checks strides without a meaning.
    strides = [(step or 0) * dtype.itemsize for step in facts["strides"]]
    memory = (ctypes.c_char * (BEFORE + BEHIND)).from_address(tensor.memory - BEFORE)
    return np.ndarray(facts["shape"], dtype, memory, BEFORE + facts["offset"], strides)


def cases_in_host_memory():
    """The valid cases that the host can read, with element types that NumPy has."""
    for case in read("dlpack.json"):
        if "facts" in case:
            facts = fields(case["facts"])
            code, bits, lanes = facts["dtype"]
            small = max(facts["shape"], default=0) < 1000
            if facts["device"][0] == CPU and code in KINDS_OF_NUMPY and bits >= 8 and lanes == 1 and small:
                yield pytest.param(case, id=case["id"])


def filled(case):
    """Returns the struct with numbers in its memory, its description, and its elements."""
    tensor, facts = tensor_of(case), fields(case["facts"])
    below = 2 if facts["dtype"][0] == BOOL else 128
    memory = (ctypes.c_uint8 * (BEFORE + BEHIND)).from_address(tensor.memory - BEFORE)
    memory[:] = [(place * 7 + place // 16) % below for place in range(BEFORE + BEHIND)]
    return tensor, facts, elements_of(tensor, facts)


def assert_same_elements(found, expected):
    """Compares bit by bit."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("case", list(cases_in_host_memory()))
def test_handed_on_to_numpy(case):
    """NumPy accepts each one in place."""
    tensor, facts, expected = filled(case)
    handed = np.from_dlpack(interop_demo.asarray(Producer(tensor)))
    assert_same_elements(handed, expected)
    if handed.size:
        assert handed.ctypes.data == tensor.memory + facts["offset"]
        assert handed.flags.writeable == (facts["readonly"] is False)
    del handed
    assert tensor.released == int(case["tensor"]["deleter"])


def is_compact(facts):
    """Returns whether the elements have no gaps, in any order of the axes."""
    expected = 1
    steps = [(step, extent) for step, extent in zip(facts["strides"], facts["shape"], strict=True) if step is not None]
    for step, extent in sorted(steps):
        if step != expected:
            return False
        expected *= extent
    return True


class Asked(Producer):
    """One of our arrays, which records the last request."""

    def __init__(self, array):
        self.array, self.device, self.asked = array, array.__dlpack_device__(), []

    def __dlpack__(self, **wishes):
        self.asked.append(wishes)
        return self.array.__dlpack__(**wishes)

    @property
    def versioned(self):
        return self.asked[-1].get("max_version", (0, 0)) >= (1, 0)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("case", list(cases_in_host_memory()))
def test_handed_on_to_jax(case):
    """JAX has the right elements, unless we refuse what its request cannot express, or JAX refuses a non-contiguous
    array.
    """
    import jax

    try:
        from jax import enable_x64
    except ImportError:  # before JAX 0.8
        from jax.experimental import enable_x64
    tensor, facts, expected = filled(case)
    readonly, compact = facts["readonly"] is not False, is_compact(facts)
    if compact and not (readonly or facts["c_contiguous"]) and jax.__version_info__ < (0, 7):
        pytest.skip("JAX 0.6 reads arrays in another order as if they were in C order, those of NumPy too")
    asked = Asked(interop_demo.asarray(Producer(tensor)))
    with enable_x64(True):
        try:
            handed = np.asarray(jax.dlpack.from_dlpack(asked))
        except ArrayError as refusal:
            assert "read-only array in a legacy" in str(refusal)
            assert readonly and not asked.versioned
        except RuntimeError as refusal:
            assert "compact" in str(refusal)
            assert not compact
        else:
            assert_same_elements(handed, expected)
            assert asked.versioned or not readonly
