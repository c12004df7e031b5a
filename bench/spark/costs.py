"""Who uses the CPU while Spark reads: its Java, its processes in Python, and the bookies; and what a worker takes of memory."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.sides import rss_anon_mib

JAVA: Final = "Java"
PYTHON: Final = "Python"
BOOKIES: Final = "bookies"
_TICKS: Final = 100
"""Of a second: what Linux has in /proc on every machine of these days."""
KIB_OF_A_MIB: Final = 1024


class Costs:
    """CPU since a moment."""

    def __init__(self, java: int, bookies: Sequence[int]) -> None:
        """Begin now. `java` and `bookies` are processes; those in Python are the descendants of Java."""
        self._java = java
        self._bookies = bookies
        self._before = self._used()

    def since(self) -> dict[str, float]:
        """Seconds of CPU since the beginning."""
        return {who: seconds - self._before[who] for who, seconds in self._used().items()}

    def _used(self) -> Mapping[str, float]:
        """Java has reaped the processes that planned a query, so their time is in its own account of children."""
        java, reaped = _cpu_s(self._java)
        python = reaped + sum(sum(_cpu_s(pid)) for pid in descendants(self._java))
        return {JAVA: java, PYTHON: python, BOOKIES: sum(_cpu_s(pid)[0] for pid in self._bookies)}


def descendants(pid: int) -> Iterator[int]:
    """All processes below one."""
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _text(thread).split():
            yield int(child)
            yield from descendants(int(child))


def java_of(pid: int) -> int:
    """The Java that a process has started."""
    found = [each for each in descendants(pid) if _text(Path(f"/proc/{each}/comm")).strip() == "java"]
    return found[-1]


def worker_peaks_mib(java: int) -> tuple[float, float]:
    """Of the processes in Python that live: the most that one ever had in memory, and the most that one has in memory of its own."""
    pids = list(descendants(java))
    peaks = [
        int(line.split()[1])
        for pid in pids
        for line in _text(Path(f"/proc/{pid}/status")).splitlines()
        if line.startswith("VmHWM")
    ]
    return max(peaks, default=0) / KIB_OF_A_MIB, rss_anon_mib(pids)


def _cpu_s(pid: int) -> tuple[float, float]:
    """What a process has used, its threads included, and what its reaped children had used; nothing if it is gone."""
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    if not fields:
        return 0.0, 0.0
    own, children = fields[11:13], fields[13:15]
    return sum(map(int, own)) / _TICKS, sum(map(int, children)) / _TICKS


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
