"""Flips every single bit of a few pages of a store and of a small journal, in forked workers, and says what each did.

Usage: python -m tools.bit_flips [--workers N] [--sample N --seed S]. A worker that LMDB takes down with it has
noticed, too (a bookie that dies answers nothing); another process continues after the bit. The exit code is 1 if any flip
made an entry vanish or change, or ended in an error that is not a documented one.
"""

import argparse
import os
import selectors
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

from rich.progress import Progress

from tests.process.chaos.records import records_file, write_record
from tests.unit.bookie.store.kit import memory_directory
from tools.bit_flips.flipping import Image, Place, journal_image, store_image

Bits = Sequence[tuple[Place, int]]
HANG_CPU_S: Final = 5
HANG_S: Final = 120
"""A verdict takes milliseconds of the CPU's time; on a machine that is busy it may take long by the clock."""
_TOO_LONG: Final = (signal.SIGPROF, signal.SIGALRM)
SOUND: Final = frozenset({"harmless", "refused", "io-error", "died", "hung"})


class _Worker:
    """A forked process that judges one bit after another and writes a line for each."""

    def __init__(self, image: Image, bits: Bits) -> None:
        """Fork."""
        self._bits = bits
        self._done = 0
        reading, writing = os.pipe()
        self.process = os.fork()
        if not self.process:
            os.close(reading)
            _judge_all(image, bits, writing)
        os.close(writing)
        self.pipe = reading
        self._rest = b""

    def take(self) -> list[tuple[Place, int, str]] | None:
        """Some verdicts; None when the process has ended."""
        data = os.read(self.pipe, 65536)
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        done = self._bits[self._done : self._done + len(lines)]
        self._done += len(lines)
        return [(place, bit, line.decode()) for (place, bit), line in zip(done, lines, strict=True)]

    @property
    def left(self) -> Bits:
        """The bits without a verdict."""
        return self._bits[self._done :]

    def end(self) -> str:
        """What a process that ended too early died of."""
        os.close(self.pipe)
        _, status = os.waitpid(self.process, 0)
        return "hung" if os.WIFSIGNALED(status) and os.WTERMSIG(status) in _TOO_LONG else "died"


def _judge_all(image: Image, bits: Bits, pipe: int) -> None:
    """The worker's life; never returns."""
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    for place, bit in bits:
        signal.setitimer(signal.ITIMER_PROF, HANG_CPU_S)
        signal.alarm(HANG_S)
        try:
            verdict = image.judge(image.flipped(place, bit))
        except Exception:  # noqa: BLE001 - whatever it is, it is the finding
            verdict = "UNCLEAR " + traceback.format_exc(limit=-1).replace("\n", " | ")
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        try:
            os.write(pipe, verdict.encode() + b"\n")
        except BrokenPipeError:  # whoever asked is gone
            os._exit(1)
    os._exit(0)


class Flips:
    """What one image's flips did."""

    def __init__(self, image: Image) -> None:
        """Nothing yet."""
        self.image = image
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    def add(self, place: Place, bit: int, verdict: str) -> None:
        """Count a verdict."""
        word = verdict.split(" ", 1)[0] if verdict.startswith("UNCLEAR") else verdict
        self.counts[f"{place.what}: {word}"] += 1
        if word not in SOUND and self.image.allowed.get(word) != place.what:
            self.violations.append(f"{self.image.name}, {place.what}, {place.file} bit {bit}: {verdict}")

    @property
    def total(self) -> int:
        """How many bits were flipped."""
        return self.counts.total()

    def count(self, verdict: str) -> int:
        """How many ended so, in all places."""
        return sum(n for what, n in self.counts.items() if what.endswith(f": {verdict}"))


def flip(images: Sequence[Image], bits: Bits, *, workers: int = 1, progress: Progress | None = None) -> Flips:
    """Judge `bits` of an image; `images` has one with a scratch place of its own for each worker."""
    result = Flips(images[0])
    task = None if progress is None else progress.add_task(images[0].name, total=len(bits))
    with selectors.DefaultSelector() as selector:
        for number in range(workers):
            worker = _Worker(images[number], bits[number::workers])
            selector.register(worker.pipe, selectors.EVENT_READ, (images[number], worker))
        while selector.get_map():
            for key, _ in selector.select():
                image, worker = key.data
                verdicts = worker.take()
                if verdicts is None:
                    selector.unregister(worker.pipe)
                    reason, left = worker.end(), worker.left
                    if not left:
                        continue
                    verdicts = [(*left[0], reason)]
                    worker = _Worker(image, left[1:])
                    selector.register(worker.pipe, selectors.EVENT_READ, (image, worker))
                for verdict in verdicts:
                    result.add(*verdict)
                if progress is not None and task is not None:
                    progress.advance(task, len(verdicts))
    return result


def all_images(directory: Path, workers: int) -> list[list[Image]]:
    """Each image once for every worker."""
    stores = []
    for number in range(workers):
        place = directory / str(number)
        place.mkdir()
        stores.append(store_image(place))
    return [stores, *([journal_image(closed=closed)] * workers for closed in (True, False))]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tools.bit_flips")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--image", default="", help="only images whose name contains this")
    parser.add_argument("--sample", type=int, default=0, help="that many bits of each image instead of all")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    failed = False
    with memory_directory() as name, Progress() as progress:
        for images in all_images(Path(name), arguments.workers):
            if arguments.image not in images[0].name:
                continue
            bits = images[0].bits()
            if arguments.sample:
                bits = Random(arguments.seed).sample(bits, min(arguments.sample, len(bits)))
            began = monotonic()
            result = flip(images, bits, workers=arguments.workers, progress=progress)
            write_record(
                f"bit-flips: {images[0].name}",
                arguments.seed,
                {"bits": result.total, **dict(sorted(result.counts.items()))},
                violations=len(result.violations),
                seconds=monotonic() - began,
            )
            progress.console.print(
                f"{images[0].name}: {result.total} bits, {len(result.violations)} violations"
            )
            progress.console.print(dict(sorted(result.counts.items())))
            for violation in result.violations[:20]:
                progress.console.print(violation, markup=False)
            failed = failed or bool(result.violations)
    print(f"written down in {records_file()}")
    return 1 if failed else 0
