"""A camera that publishes frames to two readers, as a robot does: each is a process of its own, and no frame is copied.

    python camera.py            # the camera, which starts two readers
    python camera.py reader     # a reader; the camera in Rust (`interop-ipc/examples/camera.rs`) starts it as well

The messages go through pipes here. A socket, zenoh or a queue carries them as well: they are plain bytes.
"""

import subprocess
import sys
import time
from collections import deque

import interop_ipc
import numpy as np

FRAMES = 200
# How many frames the readers may lag behind.
BUFFERS = 4


def brightness(number):
    """What every pixel of a frame has."""
    return number % 251


def camera():
    command = [sys.executable, __file__, "reader"]
    readers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    sent = deque()
    for number in range(FRAMES):
        frame = free_frame(sent)
        frame[...] = brightness(number)
        parcel = interop_ipc.share(frame, opens=2)
        message = bytes(parcel)
        for reader in readers:
            reader.stdin.write(len(message).to_bytes(4, "little") + message)
            reader.stdin.flush()
        sent.append(parcel)
        time.sleep(0.005)  # the exposure of the next frame
    for reader in readers:
        right, lost = map(int, reader.communicate()[0].split())
        assert right + lost == FRAMES and right > 0, "a frame that is opened is as it was sent"
        print(f"{right} frames read in place, {lost} lost by a reader that lagged behind")


def free_frame(sent):
    """The oldest frame if nobody reads it any more, or else a new one: a camera waits for nobody."""
    if len(sent) >= BUFFERS:
        try:
            return sent.popleft().take_back(seconds=0)
        except TimeoutError:
            pass  # it is freed when its reader has finished or crashed
    return np.from_dlpack(interop_ipc.empty((480, 640, 3), "uint8"))


def reader():
    number = right = lost = 0
    while length := sys.stdin.buffer.read(4):
        message = sys.stdin.buffer.read(int.from_bytes(length, "little"))
        try:
            frame = np.from_dlpack(interop_ipc.open(message))
        except ConnectionError:
            lost += 1  # the camera has taken the frame back
        else:
            right += frame.shape == (480, 640, 3) and bool((frame == brightness(number)).all())
            del frame  # gives it back
        number += 1
    print(right, lost)


if __name__ == "__main__":
    reader() if "reader" in sys.argv else camera()
