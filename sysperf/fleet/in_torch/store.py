"""Speak with the store of a job's ranks: ``python store.py``, lines of a verb, a key and a value in, one line out for each.

``put KEY VALUE`` sets a key, ``last KEY VALUE`` sets it when the input ends, which are answered by ``is``. ``get KEY SECONDS`` is answered
by ``is VALUE``, or by ``none`` where nobody has set it in time. ``problem WHY`` is the last answer of all.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import Store

MEET = datetime.timedelta(seconds=60)
LEAVE_S = 5.0


def answered(store: Store, verb: str, key: str, value: str) -> str:
    """Do what a line asks."""
    if verb == "put":
        store.set(key, value)
        return "is"
    return f"is {store.get(key).decode()}" if came(store, key, float(value)) else "none"


def came(store: Store, key: str, seconds: float) -> bool:
    """Whether somebody has set a key, or does within this time."""
    from torch.distributed import DistStoreError

    try:
        store.wait([key], datetime.timedelta(seconds=seconds))
    except DistStoreError:
        return False
    return True


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        from torch.distributed import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        whole, rank, size = next(rendezvous("env://", timeout=MEET))
        store, last = PrefixStore("sysperf", whole), {}
        for line in sys.stdin:
            verb, key, value = line.split()
            if verb == "last":
                last = {key: value}
            print("is" if verb == "last" else answered(store, verb, key, value), file=answers, flush=True)
        with contextlib.suppress(Exception):
            for key, value in last.items():
                store.set(key, value)
            end = time.monotonic() + LEAVE_S
            for other in range(1, size if rank == 0 else 0):  # without torchrun the store is in this process, and they must have read it
                came(store, f"done/{other}", max(0.01, end - time.monotonic()))
    except Exception as error:  # noqa: BLE001 - torch raises what it likes, and it is told
        print("problem", " ".join(f"{type(error).__name__}: {error}".split())[:300], file=answers, flush=True)


if __name__ == "__main__":
    main()
