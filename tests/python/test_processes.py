"""Results that leave the process: as NumPy arrays, whose pickles hand out the memory itself. The guide describes them under "Many
processes" (`guide/python_extension.md`).

Two GPUs, by NCCL: `examples/two_gpus.py`.
"""

import copyreg
import multiprocessing
import os
import pickle
from multiprocessing.shared_memory import SharedMemory

import interop_demo
import numpy as np
import pytest

COUNT = 100_000


def address(array):
    return array.__array_interface__["data"][0]


def test_a_result_is_pickled_in_place():
    """The buffer in the pickle is Rust's memory, and what is read from it is there too."""
    array = interop_demo.Array.full((COUNT,), 1.5)
    buffers = []
    text = pickle.dumps(np.from_dlpack(array), protocol=5, buffer_callback=buffers.append)
    assert len(text) < 500
    arrived = pickle.loads(text, buffers=buffers)
    assert address(arrived) == interop_demo.describe(arrived)["data"] == interop_demo.describe(array)["data"]
    interop_demo.scale_(arrived, 2.0)
    assert interop_demo.checksum(array) == 3 * COUNT


@pytest.mark.parametrize("make", [lambda array: array, lambda array: array[1:], lambda array: array.__dlpack__()])
def test_what_does_not_travel(make):
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(make(interop_demo.Array.full((3,), 1.0)), protocol=5)


def test_a_class_that_is_taught_to_travel(monkeypatch):
    monkeypatch.setitem(
        copyreg.dispatch_table, interop_demo.Array, lambda array: (interop_demo.asarray, (np.asarray(array),))
    )
    array, buffers = interop_demo.Array.full((COUNT,), 1.5), []
    arrived = pickle.loads(pickle.dumps(array, protocol=5, buffer_callback=buffers.append), buffers=buffers)
    assert isinstance(arrived, interop_demo.Array)
    assert interop_demo.describe(arrived)["data"] == interop_demo.describe(array)["data"]


def doubled(name):
    memory = SharedMemory(name)
    interop_demo.scale_(np.ndarray((COUNT,), "f8", memory.buf), 2.0)
    memory.close()


def test_shared_memory_is_used_in_place():
    """Another process writes to it through Rust."""
    memory = SharedMemory(create=True, size=8 * COUNT)
    try:
        array = np.ndarray((COUNT,), "f8", memory.buf)
        array[:] = 1.5
        other = multiprocessing.get_context("spawn").Process(target=doubled, args=(memory.name,))
        other.start()
        other.join(60)
        assert other.exitcode == 0 and interop_demo.checksum(array) == 3 * COUNT
        del array
    finally:
        memory.close()
        memory.unlink()


@pytest.mark.needs("distributed")
def test_dask():
    """A worker's message has Rust's memory in it, and the array that arrives is used in place."""
    from distributed import Client, LocalCluster

    def work(count):
        import interop_demo
        import numpy as np
        from distributed.protocol import serialize

        result = np.from_dlpack(interop_demo.Array.full((count,), 1.5))
        _, (frame,) = serialize(result)
        return os.getpid(), np.frombuffer(frame, "u1").ctypes.data == result.ctypes.data, result

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        worker, in_place, result = client.submit(work, COUNT).result()
    assert worker != os.getpid() and in_place
    interop_demo.scale_(result, 2.0)
    assert interop_demo.describe(result)["data"] == address(result) and result.sum() == 3 * COUNT


@pytest.mark.needs("ray")
def test_ray():
    """Every reader on the machine gets the same read-only memory, which Rust reads in place."""
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:

        @ray.remote
        def work(count):
            import interop_demo
            import numpy as np

            return np.from_dlpack(interop_demo.Array.full((count,), 1.5))

        reference = work.remote(COUNT)
        first, second = ray.get(reference), ray.get(reference)
        seen = interop_demo.describe(first)
        assert seen["data"] == address(first) == address(second) and seen["readonly"]
        assert interop_demo.checksum(first) == 1.5 * COUNT
        del first, second
    finally:
        ray.shutdown()
