"""Errors that a disk names: EIO anywhere, ENOSPC where a file begins; by a ratio, or as long as a disk is full."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Final

from daybook_bookie.journal.format import PAGE_BYTES

from tests.model.sim.disk import nothing
from tests.unit.bookie.sim_disk import SimDisk
from tests.unit.bookie.store.store_model import StoreModel

_COMMITS_BEFORE: Final = (0, 0, 1, 2)


@contextmanager
def failing_writes(
    disk: SimDisk, rng: Random, ratio: float, operations: Sequence[str], *, is_full: bool
) -> Iterator[None]:
    """With `ratio`, one of `operations` fails meanwhile, a write after a part of it; a new file finds no room if `is_full`."""
    if operations and rng.random() < ratio:
        operation = rng.choice(operations)
        disk.fail[operation] = _error(errno.EIO)
        if operation == "pwritev":
            disk.tear_at = rng.randrange(PAGE_BYTES)
    if is_full:
        disk.fail["preallocate"] = _error(errno.ENOSPC)
    try:
        yield
    finally:
        disk.fail.clear()
        disk.tear_at = None


@contextmanager
def failing_commits(store: StoreModel, rng: Random, ratio: float) -> Iterator[None]:
    """With `ratio`, one of the commits fails meanwhile, be it that it happened or not."""
    left = rng.choice(_COMMITS_BEFORE)

    def fail() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise _error(errno.EIO)

    if rng.random() < ratio:
        if rng.random() < 0.5:
            store.before_commit = fail
        else:
            store.after_commit = fail
    try:
        yield
    finally:
        store.before_commit = store.after_commit = nothing


def _error(number: int) -> OSError:
    """A new one each time: an exception keeps the frames that it passed through, and with them a whole cluster."""
    return OSError(number, "injected")
