"""The CUDA Array Interface of objects, and which of two protocols is asked (R25, R49, R51, R53, bugs 41, 130)."""

import interop_demo
import pytest
from capsules import CPU, Producer, Tensor, raising
from interfaces import dict_with

ArrayError = interop_demo.ArrayError
describe = interop_demo.describe


class Interface:
    """An object with an interface; it counts how often it is asked."""

    def __init__(self, interface):
        self.interface, self.asked = interface, 0

    @property
    def __cuda_array_interface__(self):
        self.asked += 1
        return self.interface


def test_an_interface_without_a_driver():
    """Nothing here can tell whose address that is; the error says so, names the object, and looked once."""
    producer = Interface(dict_with())
    with pytest.raises(ArrayError, match="driver.*Interface"):
        describe(producer)
    assert producer.asked == 1


@pytest.mark.parametrize(
    ("changes", "error", "place"),
    [
        ({"mask": {}}, ArrayError, "mask"),
        ({"stream": 0}, ArrayError, "stream"),
        ({"shape": (2.0,)}, TypeError, "shape"),
        ({"typestr": "<V2"}, ArrayError, "DLPack"),
        ({"version": 4}, ArrayError, "version"),
        ({"version": None}, TypeError, "version"),
        ({"data": 4096}, TypeError, "data"),
        ({"descr": 3}, TypeError, "descr"),
    ],
)
def test_an_interface_is_checked_like_a_dict(changes, error, place):
    """And the message names the class, for whoever passed several arrays."""
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
    """As it is: it is the producer's, and no statement of ours about the producer."""
    error = OverflowError("from the number")
    number = type("Number", (), {"__index__": raising(error)})()
    value = {"version": number, "stream": number}.get(key, (number, 4) if at == 0 else (4, number))
    with pytest.raises(OverflowError) as caught:
        describe(Interface(dict_with(**{key: value})))
    assert caught.value is error


def test_a_method_that_is_none_is_no_method():
    """As `__hash__ = None` is: a class takes back what its base offers, and what else it has is asked."""

    class Without(Interface):
        __dlpack__ = None

    assert describe(Without(dict_with(shape=(0,), data=(0, False))))["protocol"] == "cai"


@pytest.mark.parametrize("value", [None, 3, "x", []], ids=repr)
def test_an_interface_that_is_no_dict(value):
    with pytest.raises(TypeError, match=r"__cuda_array_interface__.* \(from .*Interface\)$"):
        describe(Interface(value))


def test_dlpack_is_preferred():
    """R53: the interface is not even looked at."""

    class Both(Producer):
        @property
        def __cuda_array_interface__(self):
            return pytest.fail("asked for the interface")

    assert describe(Both(Tensor()))["protocol"] == "dlpack_versioned"


def test_an_error_of_dlpack_does_not_lead_to_the_interface():
    """Bug 130: what a producer refuses is not tried another way."""

    class Both(Producer):
        __cuda_array_interface__ = property(lambda self: pytest.fail("asked for the interface"))

        def __dlpack__(self, **wishes):
            raise BufferError("requires grad")

    with pytest.raises(BufferError, match="requires grad"):
        describe(Both(Tensor()))


def losing():
    """An object of a class that had the method when it was first met."""

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
    """An object that says that it has no such method, whatever its class says."""

    class Hiding(Interface):
        __dlpack__ = Producer.__dlpack__

        def __getattribute__(self, name):
            if name == "__dlpack__":
                raise AttributeError(name)
            return object.__getattribute__(self, name)

    return Hiding(dict_with())


def classy():
    """An object whose class has the method, as a method of the class itself."""

    class Meta(type):
        def __dlpack__(cls, **wishes):
            return Tensor().capsule()

    return Meta("Classy", (Interface,), {})(dict_with())


@pytest.mark.parametrize("make", [losing, hiding, classy])
def test_the_object_says_whether_it_has_a_method(make):
    """What a class has is not what each of its objects has, nor what it will have."""
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
