"""Runs the workloads on one side and turns what they say into rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Event, Thread
from typing import Final

from bench.result import Result
from bench.sides import Side, WorkloadError, rss_anon_mib
from bench.simulator import simulator
from bench.workloads import Workload

SAMPLE_S: Final = 0.2


def run_side(
    side: Side,
    work: list[Workload],
    on_step: Callable[[str], None],
    on_failure: Callable[[WorkloadError], None],
    *,
    is_peer: bool,
) -> Iterator[Result]:
    """Measure every workload on `side`, with as many bookies as it needs (three, or its ensemble).

    A workload whose client fails is told to `on_failure`, and the next one is run.
    """
    for bookies in sorted({max(3, each.quorums.ensemble_size) for each in work}):
        chosen = [each for each in work if max(3, each.quorums.ensemble_size) == bookies]
        on_step(f"{side.name}: starting {bookies} bookies")
        side.start(bookies)
        try:
            idle_stop_s = side.stop_bookies()
            side.start_bookies()
            for each in chosen:
                if each.peer or not is_peer:
                    on_step(f"{side.name}: {each.name}")
                    try:
                        result = measure(side, each, idle_stop_s)
                    except WorkloadError as error:
                        on_failure(error)
                    else:
                        yield result
        finally:
            side.stop()


def measure(side: Side, work: Workload, idle_stop_s: float) -> Result:
    """One workload: of many ledgers; or write, drain, restart, read or recover."""
    if work.kind in ("create", "recover", "idle"):
        return measure_many(side, work)
    with simulator() if work.beside_sim else nullcontext(), peak_memory(side) as peak_mib:
        written = side.write(work)
    result = Result(side.name, work.name, work.count, work.entry_bytes, rate_per_s=work.rate_per_s)
    result.rss_anon_mib = max(peak_mib)
    if work.kind == "latency":
        result.p50_ms, result.p99_ms, result.p999_ms = (
            written[name] for name in ("p50_ms", "p99_ms", "p999_ms")
        )
        result.entries_per_s = work.count / written["seconds"]
        return result
    if not work.close:
        result.recovery_ms = 1e3 * side.recover(written["ledger"])["seconds"]
        return result
    drain_s = max(0.0, side.stop_bookies() - idle_stop_s)
    result.before_drain_per_s = work.count / written["seconds"]
    result.entries_per_s = work.count / (written["seconds"] + drain_s)
    side.start_bookies()
    if work.read:
        result.read_per_s = work.count / side.read(written["ledger"], work)["seconds"]
    return result


def measure_many(side: Side, work: Workload) -> Result:
    """One workload of many ledgers."""
    result = Result(side.name, work.name, work.ledgers * work.count, work.entry_bytes)
    with peak_memory(side) as peak_mib:
        if work.kind == "create":
            created = side.create(work)
            result.seconds = created["seconds"]
            result.first_entries_s = created["first_entries_seconds"]
        elif work.kind == "recover":
            result.seconds = side.recover_many(side.leave_open(work)["ledgers"], work)["seconds"]
        else:
            idle = side.hold_open(work)
            result.client_cpu_percent = idle["client_cpu_percent"]
            result.bookie_cpu_percent = idle["bookie_cpu_percent"]
    result.rss_anon_mib = max(peak_mib)
    return result


@contextmanager
def peak_memory(side: Side) -> Iterator[list[float]]:
    """Samples the bookies' anonymous memory while the block runs."""
    samples = [rss_anon_mib(side.bookie_pids())]
    over = Event()

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            samples.append(rss_anon_mib(side.bookie_pids()))

    thread = Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
