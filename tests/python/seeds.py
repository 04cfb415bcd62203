"""Seeds of random tests: a failure prints its seed, and a variable sets it."""

import os
import random

# The seed of a repeated run: `INTEROP_SEED=<seed>`.
GIVEN = os.environ.get("INTEROP_SEED")


def generator():
    """A generator with a new seed, which pytest prints with a failure."""
    seed = int(GIVEN) if GIVEN else random.SystemRandom().randrange(2**32)
    print(f"INTEROP_SEED={seed} runs this again")
    return random.Random(seed)
