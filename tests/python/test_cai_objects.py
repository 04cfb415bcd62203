"""The CUDA Array Interface of objects, and the choice between the two protocols (R25, R49, R51, R53, bugs 41, 130)."""

import interop_demo
import pytest
from capsules import CPU, Producer, Tensor, raising
from interfaces import dict_with

ArrayError = interop_demo.ArrayError
describe = interop_demo.describe


class Interface:
    """An object with an interface; it counts the reads."""

    def __init__(self, interface):
        self.interface, self.asked = interface, 0

    @property
    def __cuda_array_interface__(self):
        self.asked += 1
        return self.interface


def test_an_interface_without_a_driver():
    """Without a driver the owner of the address is unknown; the error says so, names the object, and read the dict
    once.
    """
    producer = Interface(dict_with())
    with pytest.raises(ArrayError, match="driver.*Interface"):
        describe(producer)
    assert producer.asked == 1


@pytest.mark.parametrize(
    ("changes", "error", "place"),
    [
        ({"mask": {}}, ArrayError, "mask"), ({"stream": 0}, ArrayError, "stream"),
        ({"shape": (2.0,)}, TypeError, "shape"), ({"typestr": "<V2"}, ArrayError, "DLPack"),
        ({"version": 4}, ArrayError, "version"), ({"version": None}, TypeError, "version"),
        ({"data": 4096}, TypeError, "data"), ({"descr": 3}, TypeError, "descr"),
    ],
)
def test_an_interface_is_checked_like_a_dict(changes, error, place):
    """The message also names the class, because a call may have several array arguments."""
    with pytest.raises(error, match=rf"{place}.* \(from .*Interface\)$"):
        describe(Interface(dict_with(**changes)))


def test_a_key_that_an_interface_lacks():
    interface = dict_with()
    del interface["version"]
    with pytest.raises(ArrayError, match=r"^`version`: found no such key.* \(from .*Interface\)$"):
        describe(Interface(interface))


@pytest.mark.parametrize("key", ["shape", "strides", "data", "version", "stream"])
@pytest.mark.parametrize("at", [0, 1])
def test_what_an_interface_raises_is_passed_on(key, at):
    """Unchanged: it is the producer's exception, and not our statement about the producer."""
    error = OverflowError("from the number")
    number = type("Number", (), {"__index__": raising(error)})()
    value = {"version": number, "stream": number}.get(key, (number, 4) if at == 0 else (4, number))
    with pytest.raises(OverflowError) as caught:
        describe(Interface(dict_with(**{key: value})))
    assert caught.value is error


def test_a_method_that_is_none_is_no_method():
    """Like `__hash__ = None`: a class removes a method of its base, and its other protocol is used."""

    class Without(Interface):
        __dlpack__ = None

    assert describe(Without(dict_with(shape=(0,), data=(0, False))))["protocol"] == "cai"


@pytest.mark.parametrize("value", [None, 3, "x", []], ids=repr)
def test_an_interface_that_is_no_dict(value):
    with pytest.raises(TypeError, match=r"__cuda_array_interface__.* \(from .*Interface\)$"):
        describe(Interface(value))


def test_dlpack_is_preferred():
    """R53: the interface is not even read."""

    class Both(Producer):
        @property
        def __cuda_array_interface__(self):
            return pytest.fail("asked for the interface")

    assert describe(Both(Tensor()))["protocol"] == "dlpack_versioned"


def test_an_error_of_dlpack_does_not_lead_to_the_interface():
    """Bug 130: after a producer refuses, no other protocol is tried."""

    class Both(Producer):
        __cuda_array_interface__ = property(lambda self: pytest.fail("asked for the interface"))

        def __dlpack__(self, **wishes):
            raise BufferError("requires grad")

    with pytest.raises(BufferError, match="requires grad"):
        describe(Both(Tensor()))


def losing():
    """An object of a class that had the method when it was first seen."""

    class Losing(Interface):
        def __dlpack__(self, **wishes):
            return Tensor().capsule()

        def __dlpack_device__(self):
            return (CPU, 0)

    producer = Losing(dict_with())
    assert describe(producer)["protocol"] == "dlpack_versioned"
    del Losing.__dlpack__
    return producer


def hiding():
    """An object that hides the method of its class."""

    class Hiding(Interface):
        __dlpack__ = Producer.__dlpack__

        def __getattribute__(self, name):
            if name == "__dlpack__":
                raise AttributeError(name)
            return object.__getattribute__(self, name)

    return Hiding(dict_with())


def classy():
    """An object whose class has the method as a class method."""

    class Meta(type):
        def __dlpack__(cls, **wishes):
            return Tensor().capsule()

    return Meta("Classy", (Interface,), {})(dict_with())


@pytest.mark.parametrize("make", [losing, hiding, classy])
def test_the_object_says_whether_it_has_a_method(make):
    """The class alone does not determine whether an object has the method, now or later."""
    producer = make()
    with pytest.raises(ArrayError, match="driver"):
        describe(producer)
    assert producer.asked == 1


def test_a_method_that_the_class_does_not_show():
    class Shy:
        def __get__(self, producer, owner=None):
            if producer is None:
                raise RuntimeError("ask an object")
            return lambda **wishes: Tensor().capsule()

    producer = type("Producer", (Producer,), {"__dlpack__": Shy()})(Tensor())
    assert describe(producer)["protocol"] == "dlpack_versioned"
