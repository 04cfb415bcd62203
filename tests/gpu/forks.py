"""A process that forks while it uses a GPU, as data loaders do: the child uses host memory and drops the objects it
inherited.
"""

import pytest
from scripts import run

OURS = """
import gc, os, signal, sys
import driver, interop_demo, numpy as np

KINDS = ("cuda", "pool", "pinned", "managed")


def own():
    array = np.arange(6.0)
    assert interop_demo.checksum(interop_demo.asarray(array)) == 15
    np.from_dlpack(interop_demo.Array.full((6,), 1.0))[...] = array


def in_the_child(kept):
    own()
    for kind in KINDS:
        try:
            interop_demo.Array.full((2,), 1.0, device=kind)
        except interop_demo.ArrayError as error:
            assert "CUDA_ERROR" in str(error), error
        else:
            raise AssertionError(f"memory of the kind {kind} in a process that was forked")
    kept.clear()
    gc.collect()
    own()
    assert (interop_demo.poll_releases(), interop_demo.live_allocations()) == (0, len(KINDS))


def forked(kept, exit):
    child = os.fork()
    if not child:
        signal.alarm(60)  # the end of a child that waits for ever
        in_the_child(kept)
        exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


arrays = [interop_demo.Array.full((64, 64), 1.0, device=kind) for kind in KINDS]
stream = driver.stream()
for exit in (os._exit, sys.exit):
    held = [*arrays, *map(interop_demo.asarray, arrays), *(array.__dlpack__(max_version=(1, 0)) for array in arrays)]
    late = interop_demo.asarray(arrays[1])
    assert interop_demo.finish_releases() == 0
    driver.sleep(stream, 300)
    del late
    assert interop_demo.poll_releases() == 1, "the stream is at work"
    forked(held, exit)
    assert [interop_demo.checksum(array) for array in held[:8]] == [4096] * 8
del arrays, held
assert interop_demo.finish_releases() == 0
assert (interop_demo.live_exports(), interop_demo.live_allocations()) == (0, 0)
print("done")
"""

TORCH = """
import interop_demo, numpy as np, torch


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        array = interop_demo.asarray(np.full((8,), float(at)))
        interop_demo.scale_(array, float(at))
        return torch.from_dlpack(array)


resident = torch.ones(1024, device="cuda")
ours = interop_demo.asarray(resident)
for epoch in range(3):
    loader = torch.utils.data.DataLoader(Squares(), batch_size=8, num_workers=4, multiprocessing_context="fork")
    for at, batch in enumerate(loader):
        again = torch.from_dlpack(interop_demo.asarray(batch.cuda()))
        assert again[:, 0].tolist() == [float(number * number) for number in range(8 * at, 8 * at + 8)]
assert interop_demo.checksum(ours) == 1024
del ours, again
assert interop_demo.finish_releases() == 0
print("done")
"""


def test_the_child_uses_the_host_and_drops_what_it_came_with():
    assert run(OURS, timeout=140) == "done\n"


def test_a_data_loader_of_torch():
    pytest.importorskip("torch", exc_type=ImportError)
    assert run(TORCH, timeout=140) == "done\n"
