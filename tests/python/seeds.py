"""Random tests that say how to run them again: a seed in the failure, and a variable that sets it."""

import os
import random

# A run of one seed: `INTEROP_SEED=<seed>`.
GIVEN = os.environ.get("INTEROP_SEED")


def generator():
    """A generator with a seed of this run, printed where pytest shows it beside a failure."""
    seed = int(GIVEN) if GIVEN else random.SystemRandom().randrange(2**32)
    print(f"INTEROP_SEED={seed} runs this again")
    return random.Random(seed)
