"""A process that opens arrays, and what of `interop_ipc` this process has open."""

import subprocess
import sys
import time
from pathlib import Path

# The time in seconds in which the other process must act on a busy machine.
PATIENCE = 20.0


def files():
    """The memory files of `interop_ipc` that this process has open or mapped."""
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum("memfd:interop-ipc" in str(line) for line in [*links, *maps])


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "not true in time"
        time.sleep(0.002)


class Reader:
    """A process that opens what it is sent, line by line, and says what it sees."""

    def __init__(self, before=()):
        command = [*before, sys.executable, "-B", str(Path(__file__).with_name("reader.py"))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, order, message=b""):
        print(order, bytes(message).hex(), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, f"the reader has ended at {order!r}"
        return answer.strip()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Ends it, also a child of the command that runs it."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(PATIENCE)
