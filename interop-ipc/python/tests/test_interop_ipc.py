"""Arrays of Python libraries in other processes, and what is refused."""

import gc
import multiprocessing
import os
import pickle
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import interop_ipc
import numpy as np
import pytest
from support import PATIENCE, Reader, files, wait_for


def numbers(shape=(2, 3), dtype="float32"):
    """An array of NumPy in memory that can be shared: 0, 1, 2, …"""
    array = np.from_dlpack(interop_ipc.empty(shape, dtype))
    array[...] = np.arange(array.size).reshape(array.shape)
    return array


def test_an_array_is_read_in_place(reader):
    array = numbers()
    parcel = interop_ipc.share(array)
    assert len(parcel) <= 200
    assert reader.ask("open", parcel) == "float32 [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]"
    with pytest.raises(TimeoutError, match="still has the array open after 0.05 s"):
        parcel.take_back(seconds=0.05)
    assert [lease.process for lease in interop_ipc.leases()] == [reader.process.pid]
    reader.ask("drop")
    assert parcel.take_back() is array
    with pytest.raises(RuntimeError, match="taken back"):
        parcel.take_back()


@pytest.mark.parametrize("dtype", ["bool", "int8", "<u2", np.dtype("i8"), np.float16, "c8", float, bool])
def test_element_types(reader, dtype):
    array = numbers((3,), dtype)
    assert array.dtype == np.dtype(dtype)
    assert reader.ask("open", interop_ipc.share(array)) == f"{array.dtype} {array.tolist()}"


@pytest.mark.parametrize("dtype", ["f9", ">f4", object, "text", [("x", "f4")]])
def test_types_that_are_refused(dtype):
    with pytest.raises((interop_ipc.ArrayError, TypeError)):
        interop_ipc.empty(3, dtype)


@pytest.mark.parametrize("shape", [(), 0, 7, np.int64(2), (0, 3), [2, 3], np.array([2, 2])])
def test_shapes(reader, shape):
    array = numbers(shape)
    assert array.shape == np.empty(shape).shape
    assert reader.ask("open", interop_ipc.share(array)) == f"float32 {array.tolist()}"


@pytest.mark.parametrize("shape", [-1, (2, -1), "3", 1.5, (1 << 62, 8), (1 << 45,), None])
def test_shapes_that_are_refused(shape):
    with pytest.raises((interop_ipc.ArrayError, TypeError, MemoryError)):
        interop_ipc.empty(shape)


def test_a_view_keeps_its_offset_and_strides(reader):
    """The offset in a block is what others have lost."""
    view = numbers((4, 6))[3:0:-2, 1::3]
    assert reader.ask("open", interop_ipc.share(view)) == f"float32 {view.tolist()}"


def test_an_array_that_is_released_without_the_lock_is_given_back(reader):
    parcel = interop_ipc.share(numbers())
    # The reader does not call the module again.
    assert reader.ask("release", parcel) == "ok"
    parcel.take_back(PATIENCE)


def test_other_memory_needs_a_copy(reader):
    array = np.arange(6.0).reshape(2, 3).T
    with pytest.raises(interop_ipc.ArrayError, match=r"`interop_ipc\.empty`.*copy=True"):
        interop_ipc.share(array)
    parcel = interop_ipc.share(array, copy=True)
    array[...] = -1
    assert reader.ask("open", parcel) == "float64 [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]"


def test_a_copy_of_structs_and_strings_of_bytes():
    records = np.array([(1, 2.5), (3, 4.5)], [("id", "i4"), ("value", "f8")])
    opened = np.asarray(interop_ipc.open(interop_ipc.share(records, copy=True)))
    assert opened.dtype.names == ("id", "value") and opened.tolist() == records.tolist()


def test_a_buffer_and_an_opened_array_need_a_copy():
    assert bytes(interop_ipc.open(interop_ipc.share(b"abc", copy=True))) == b"abc"
    opened = interop_ipc.open(interop_ipc.share(numbers()))
    with pytest.raises(interop_ipc.ArrayError, match="an open array"):
        interop_ipc.share(opened)


def test_a_shared_array_is_read_only_and_one_that_is_given_away_is_not(reader):
    array = numbers()
    assert "read-only" in reader.ask("add", interop_ipc.share(array))
    parcel = interop_ipc.share(array, writable=True)
    assert reader.ask("add", parcel) == "ok"
    assert parcel.take_back()[1, 2] == 6
    for wrong in ({"opens": 2}, {"copy": True}):
        with pytest.raises(ValueError, match="writable"):
            interop_ipc.share(array, writable=True, **wrong)


def test_a_read_only_array_stays_so(reader):
    array = numbers()
    array.flags.writeable = False
    assert "read-only" in reader.ask("add", interop_ipc.share(array, writable=True))


def test_openings_are_counted_and_replays_refused(reader):
    parcel = interop_ipc.share(numbers(), opens=2)
    assert reader.ask("open", parcel) == reader.ask("open", parcel)
    for _ in range(3):
        assert reader.ask("open", parcel).startswith("ConnectionError: ")


def test_an_offer_ends_after_its_time_and_by_hand():
    short, long = (interop_ipc.share(numbers(), seconds=seconds) for seconds in (0.01, 60))
    time.sleep(0.02)
    long.withdraw()
    long.withdraw()
    for parcel in (short, long):
        with pytest.raises(ConnectionError, match="no longer offered"):
            interop_ipc.open(parcel)


def test_a_with_statement_takes_the_array_back(reader):
    array = numbers()
    with interop_ipc.share(array, opens=9) as parcel:
        reader.ask("open", parcel)
        reader.ask("drop")
    array[...] = 7
    assert reader.ask("open", parcel).startswith("ConnectionError: ")
    with pytest.raises(KeyError), interop_ipc.share(array) as parcel:
        reader.ask("open", parcel)
        raise KeyError  # the offer ends, and nobody waits for the reader


def test_a_parcel_that_is_dropped_stays_open_for_others(reader):
    message = bytes(interop_ipc.share(numbers((1,))))
    assert reader.ask("open", message) == "float32 [0.0]"


@pytest.mark.parametrize("arguments", [{"opens": 0}, {"opens": -1}, {"seconds": -1}, {"seconds": float("nan")}])
def test_arguments_that_are_refused(arguments):
    with pytest.raises((ValueError, OverflowError)):
        interop_ipc.share(numbers(), **arguments)


def test_messages_that_are_refused():
    message = bytes(interop_ipc.share(numbers()))
    for length in range(len(message)):
        with pytest.raises(TypeError):
            interop_ipc.open(message[:length])
    with pytest.raises(interop_ipc.ArrayError, match="version"):
        interop_ipc.open(message[:4] + b"\2" + message[5:])
    for wrong in (message + b"\0", bytes(5000), memoryview(np.zeros(3)), "text", None):
        with pytest.raises((TypeError, BufferError)):
            interop_ipc.open(wrong)
    beyond = bytearray(message)
    at = 26 + message[25]  # behind the address of the office: the number of the block, in seven bits a byte
    while beyond[at] & 0x80:
        at += 1
    assert beyond[at + 1] == 24, "the bytes of the block"
    beyond[at + 1] = 23
    with pytest.raises(interop_ipc.ArrayError, match="the 23 bytes of memory"):
        interop_ipc.open(beyond)
    assert np.asarray(interop_ipc.open(message)).sum() == 15, "the offer stays"


def test_any_channel():
    """A message is bytes: for a socket, a pickle, and everything that takes a buffer."""
    array = numbers((3,))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(interop_ipc.share(array))
        assert np.asarray(interop_ipc.open(theirs.recv(4096))).tolist() == [0, 1, 2]
    parcel = interop_ipc.share(array, opens=4)
    for message in (pickle.loads(pickle.dumps(parcel)), bytearray(parcel), memoryview(parcel), parcel):
        assert np.asarray(interop_ipc.open(message)).tolist() == [0, 1, 2]
    assert bytes(parcel) not in repr(parcel).encode()


def answer(message, results):
    array = np.from_dlpack(interop_ipc.open(message))
    results.put((array.tolist(), array.flags.writeable))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method):
    context = multiprocessing.get_context(method)
    results, parcel = context.Queue(), interop_ipc.share(numbers((3,)))
    process = context.Process(target=answer, args=(parcel, results))
    process.start()
    assert results.get(timeout=PATIENCE) == ([0.0, 1.0, 2.0], False)
    process.join(PATIENCE)
    parcel.take_back(PATIENCE)
    results.close()
    results.join_thread()


def in_a_child(run):
    child = os.fork()
    if not child:
        signal.alarm(30)  # the end of a child that waits for ever
        status = 1
        try:
            run()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_before_and_after():
    parcel = interop_ipc.share(numbers((3,)), opens=3)
    opened = np.asarray(interop_ipc.open(parcel))

    def child():
        nonlocal opened
        assert opened.tolist() == [0, 1, 2]
        del opened  # the parent has it open still
        assert np.asarray(interop_ipc.open(parcel)).tolist() == [0, 1, 2]
        own = numbers((2,))
        with interop_ipc.share(own) as offer:
            assert np.asarray(interop_ipc.open(offer)).tolist() == [0, 1]
        with pytest.raises(ConnectionError, match="forked"):
            parcel.take_back()

    in_a_child(child)
    assert opened.tolist() == [0, 1, 2]
    wait_for(lambda: len(interop_ipc.leases()) == 1)
    assert np.asarray(interop_ipc.open(parcel)).tolist() == [0, 1, 2], "the offer of the parent stays"


def test_either_process_is_killed(reader):
    array = numbers((3,))
    parcel = interop_ipc.share(array)
    reader.ask("open", parcel)
    theirs = [bytes.fromhex(reader.ask("share")) for _ in range(2)]
    opened = np.asarray(interop_ipc.open(theirs[0]))
    reader.kill()
    assert parcel.take_back(PATIENCE) is array
    assert opened.tolist() == [1, 2, 3], "what is open stays"
    with pytest.raises(ConnectionError, match="ended"):
        interop_ipc.open(theirs[1])


def test_a_reader_asks_whether_the_producer_runs(reader):
    message = bytes.fromhex(reader.ask("share"))
    assert interop_ipc.is_alive(message), "before it is opened"
    opened = np.asarray(interop_ipc.open(message))
    assert interop_ipc.is_alive(message), "after that"
    reader.kill()
    assert not interop_ipc.is_alive(message)
    assert opened.tolist() == [1, 2, 3], "what is open stays"
    with pytest.raises(TypeError):
        interop_ipc.is_alive(message[:-1])


def test_a_producer_that_hangs(reader):
    """It does not answer, but the reader does not wait for ever. What is open stays open."""
    messages = [bytes.fromhex(reader.ask("share")) for _ in range(3)]
    opened = np.asarray(interop_ipc.open(messages[0]))
    os.kill(reader.process.pid, signal.SIGSTOP)
    os.waitpid(reader.process.pid, os.WUNTRACED)  # all its threads have stopped
    try:
        assert interop_ipc.is_alive(messages[1]), "it has not ended"
        with pytest.raises(ConnectionError, match="not answered"):
            interop_ipc.open(messages[1])
    finally:
        os.kill(reader.process.pid, signal.SIGCONT)
    assert opened.tolist() == [1, 2, 3]
    assert np.asarray(interop_ipc.open(messages[2])).tolist() == [1, 2, 3], "by a new connection"


class Stream:
    """As a stream of CuPy or cuda.core."""

    def __cuda_stream__(self):
        return 0, 0


@pytest.mark.parametrize("stream", [1, 2, 7 << 20, np.int64(2), Stream()])
def test_a_stream_means_nothing_for_memory_of_the_host(reader, stream):
    array = numbers()
    parcel = interop_ipc.share(array, opens=2)
    assert np.asarray(interop_ipc.open(parcel, stream=stream)).sum() == 15
    reader.ask("open", parcel)
    with pytest.raises(TimeoutError):
        parcel.take_back(0.01, stream=stream)
    reader.ask("drop")
    assert parcel.take_back(stream=stream) is array


@pytest.mark.parametrize("stream", [0, -3, "1", 1.5, True, object()])
def test_streams_that_are_refused(stream):
    parcel = interop_ipc.share(numbers())
    for use in (lambda: interop_ipc.open(parcel, stream=stream), lambda: parcel.take_back(stream=stream)):
        with pytest.raises((TypeError, ValueError)):
            use()
    assert np.asarray(interop_ipc.open(parcel)).sum() == 15, "the offer stays"


def test_a_block_stays_mapped_for_a_while():
    """So that array after array of one block is opened without mapping it again. It is closed soon."""
    array = numbers()
    before = files()

    def is_still_mapped():
        opened = np.asarray(interop_ipc.open(interop_ipc.share(array)))
        during = files()
        del opened
        return files() == during

    # The machine may be busy for the tenth of a second.
    assert any(is_still_mapped() for _ in range(50))
    wait_for(lambda: files() <= before)


def test_a_producer_that_has_ended():
    code = "import interop_ipc, sys; sys.stdout.write(bytes(interop_ipc.share(interop_ipc.empty(3))).hex())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    with pytest.raises(ConnectionError, match="has ended"):
        interop_ipc.open(bytes.fromhex(done.stdout))


def test_an_interpreter_ends_with_everything_open():
    code = """
import interop_ipc, numpy as np
array = np.asarray(interop_ipc.empty(3))
parcel = interop_ipc.share(array, opens=3)
opened = np.asarray(interop_ipc.open(parcel))
given = interop_ipc.share(array, opens=3)
del array
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_other_threads_run_while_one_waits(reader):
    parcel, count = interop_ipc.share(numbers()), 0
    reader.ask("open", parcel)
    waiting = threading.Thread(target=parcel.take_back, args=(PATIENCE,))
    waiting.start()
    while waiting.is_alive() and count < 100:
        count += 1
        time.sleep(0.001)
    assert count == 100, "the wait gives up the lock"
    with pytest.raises(RuntimeError, match="another thread"):
        parcel.take_back()
    parcel.withdraw()
    reader.ask("drop")
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_a_wait_is_interrupted_by_a_signal(reader):
    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    parcel, before = interop_ipc.share(numbers()), signal.signal(signal.SIGALRM, stop)
    try:
        reader.ask("open", parcel)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Stop):
            parcel.take_back(PATIENCE)
    finally:
        signal.signal(signal.SIGALRM, before)
    reader.ask("drop")
    parcel.take_back(PATIENCE)


@pytest.mark.parametrize("method", ["give back", "die", "expire"])
def test_an_array_is_freed_by_a_process_that_only_waits(reader, method):
    """The last reference goes on a thread of Rust, and this process calls the module no more."""

    class Counted(np.ndarray):
        pass

    array = numbers().view(Counted)
    freed = weakref.ref(array)
    message = bytes(interop_ipc.share(array, seconds=0.2 if method == "expire" else 60))
    del array
    assert freed() is not None
    if method != "expire":
        reader.ask("open", message)
        reader.kill() if method == "die" else reader.ask("drop")
    wait_for(lambda: freed() is None)


def test_readers_in_threads():
    array, results = numbers((3,)), queue.SimpleQueue()

    def work():
        for _ in range(50):
            results.put(np.asarray(interop_ipc.open(parcel)).tolist())

    with interop_ipc.share(array, opens=200) as parcel:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert [results.get_nowait() for _ in range(200)] == [[0, 1, 2]] * 200


def test_a_path_for_containers(tmp_path):
    path = tmp_path / "office"
    code = """
import interop_ipc, sys, time
interop_ipc.listen_at(sys.argv[1])
print(bytes(interop_ipc.share(interop_ipc.empty(3))).hex(), flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        message = bytes.fromhex(producer.stdout.readline())
        assert str(path).encode() in message
        assert np.asarray(interop_ipc.open(message)).tolist() == [0, 0, 0]
        producer.stdin.close()
    with pytest.raises(ConnectionError, match="has ended"):
        interop_ipc.open(message)
    with pytest.raises(interop_ipc.ArrayError, match="absolute"):
        interop_ipc.listen_at("relative")


def test_another_user(tmp_path):
    """Where this process may become one."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    parcel = interop_ipc.share(numbers((3,)))

    def child():
        os.setuid(65534)
        with pytest.raises(interop_ipc.ArrayError, match="user"):
            interop_ipc.open(parcel)

    in_a_child(child)
    assert np.asarray(interop_ipc.open(parcel)).tolist() == [0, 1, 2], "the offer stays"


def unshared(*namespaces):
    """The start of a command that runs in namespaces of its own."""
    unshare = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), *namespaces]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"this system permits no {' '.join(namespaces)}")
    return unshare


def test_another_pid_namespace():
    """The other process has no number here, so its socket tells its end."""
    parcel = interop_ipc.share(numbers((3,)))
    with Reader(unshared("--pid", "--fork")) as reader:
        assert reader.ask("open", parcel) == "float32 [0.0, 1.0, 2.0]"
        assert len(interop_ipc.leases()) == 1
    wait_for(lambda: not interop_ipc.leases())


def test_another_network_namespace(tmp_path):
    """The other process does not reach this one, or this one it, without a path."""
    with Reader(unshared("--net")) as reader:
        cure = r"network namespace of its own.*`interop_ipc\.listen_at`\) with a path that both can open"
        # Nobody opens it, so the offer has to end by itself.
        assert re.fullmatch(f"ConnectionError: .*{cure}", reader.ask("open", interop_ipc.share(numbers(), seconds=0)))
        with pytest.raises(ConnectionError, match=cure):
            interop_ipc.open(bytes.fromhex(reader.ask("share")))
        path = os.fsencode(tmp_path / "office")
        assert reader.ask("listen", path) == "ok"
        message = bytes.fromhex(reader.ask("share"))
        assert np.asarray(interop_ipc.open(message)).tolist() == [1, 2, 3]
    with pytest.raises(ConnectionError, match=f"nobody listens at `{tmp_path}/office`.*does not mount the folder"):
        interop_ipc.open(message)


def test_the_connection_to_a_process_that_has_ended(tmp_path):
    """Its end was seen before the last reference was gone, and the page stayed until the next exchange."""
    path = os.fsencode(tmp_path / "office")
    for _ in range(8):
        before = files()
        with Reader() as reader:
            reader.ask("listen", path)
            message = bytes.fromhex(reader.ask("share"))
            assert np.asarray(interop_ipc.open(message)).tolist() == [1, 2, 3]
        with pytest.raises(ConnectionError):
            interop_ipc.open(message)
        gc.collect()
        wait_for(lambda: files() <= before)  # noqa: B023


@pytest.mark.parametrize("example", ["camera.py", "trainer.py"])
def test_examples(example):
    """They check themselves."""
    script = Path(__file__).parents[1] / "examples" / example
    done = subprocess.run([sys.executable, "-B", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 and "read in place" in done.stdout, done.stderr


@pytest.mark.parametrize("library", ["torch", "jax.numpy", "tvm_ffi"])
def test_libraries(reader, library):
    package = pytest.importorskip(library)
    memory = interop_ipc.empty((2, 3), "float32")
    np.asarray(memory)[...] = 3
    array = package.from_dlpack(memory)
    assert reader.ask("open", interop_ipc.share(array)) == "float32 [[3.0, 3.0, 3.0], [3.0, 3.0, 3.0]]"
    if library == "torch":
        assert reader.ask("open", interop_ipc.share(array[1, 1:])) == "float32 [3.0, 3.0]"
        with pytest.raises(interop_ipc.ArrayError, match="gradient"):
            interop_ipc.share(array.requires_grad_())
