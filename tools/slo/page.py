"""docs/slo.md, made of the records of runs: `docs/records/slo.jsonl`, a line for each measurement of each run."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

from tests.paths import ROOT
from tools.slo.cases import QUORUMS
from tools.slo.kubernetes import KUBERNETES, KUBERNETES_NOTES, kubernetes_rows

RECORDS: Final = ROOT / "docs" / "records" / "slo.jsonl"
PAGE: Final = ROOT / "docs" / "slo.md"

Record: TypeAlias = dict[str, Any]

HEAD: Final = """\
# What losses cost

What is lost (RPO) and how long an interruption lasts (RTO) after a failure, and which failures each choice of E, Qw and Qa survives.
The named test measured each figure with real processes; `make test` runs the same tests and asserts what is
lost and what continues. `make slo` repeats them (`RUNS=n`, 5 unless set) and writes this page from `docs/records/slo.jsonl`.

Times are {times}, on a machine with {cores} cores that ran client, ZooKeeper and all bookies, {dates},
commit {commits}. They show what the protocol adds. They do not include the time to restart a lost process, or the time until
a network reports that a machine is gone; both are outside of Daybook.
"""

LOSSES: Final = """
## RPO and RTO

One writer, E=3 Qw=3 Qa=2 unless stated otherwise, one entry every 5 ms. "Next acknowledgement" is the longest time without an
acknowledgement. "Recovered" is the time from the end of the writer until another process has fenced, recovered and
closed the ledger and read its last entry; the lost process is still missing unless it has returned by then. "Lost" counts
acknowledged entries that could not be read back, or not as they were written.

"""

NOTES: Final = """
- Repair copies the dead bookie's entries once the bookie has been unregistered for the delay (a minute: `daybook audit --set-delay`); "copies made
  anew" is the time to copy this small ledger.
- A client notices a dead process when the connection breaks, and a process that hangs after 5 seconds. With Qa < Qw no writer waits for it.
- The writer's time assumes a reader that knows at once that the writer is gone. Daybook does not detect this: the client that opens the ledger
  with recovery decides it.
- Open writers and readers do not notice that ZooKeeper is unavailable. Operations that need metadata (create, open, close, recover, change an ensemble) wait for
  it; a ledger was created and written to {created} after it served again.
- All bookies at once, by SIGKILL: {total} from the kill to the next acknowledgement, of which the start of the processes took {started}. `make power-cuts` tests
  power cuts, after which a disk lacks what was not synced.
- Entries that were appended and not acknowledged are unknown: they may exist or not (rule 13). They do not count as lost.
"""

BROKERS: Final = """
## The loss of a broker

One broker owns every topic, and another one is there and owns none. Each topic has a producer without batches and an exclusive subscription whose consumer acknowledges each
message at once, all in one process with Pulsar's C++ client whose service URL has the address of the broker that stays: one topic with a message every 5 ms, many with one every two seconds each, so that all their cursors move. Sessions last the default
of 5 seconds. Times are from the kill, {times}, {dates}, commit {commits}, on a machine with {cores} cores that ran everything and
nothing else (load average at their ends: {load}).

"Session over" is when ZooKeeper ended the killed broker's session; "recovered" is when the last topic's ledgers were recovered and its list changed; then the clients continue. "Next receipt" is
of messages that were sent after the kill: half of the topics had theirs by the first figure, all by the last. At the unload nobody was killed: "recovered" is the time of the
admin request, and the last figure is the longest time without a receipt. "Lost" counts messages with a receipt that did not arrive.

"""

BROKER_NOTES: Final = """
- Asked for: less than 8 s for one topic, 30 s for 1,000, 1 s for an unload.
- CPython 3.14.8 as Debian builds it, and compiled modules, as the images have. With plain Python 3.11 1,000 topics took 13 s in two runs, and 14 s in one beside two processes that compute.
- The session of a killed broker lasts 5 s after its last heartbeat, which is up to a third of that before the kill. It is the largest part for few topics. A broker that stops in order hands its bundles over at once.
- With many topics the CPU of the new owner is the bound: it recovers two ledgers for each topic, of the messages and of the cursor, while it serves those that it has. 128 are recovered at once (`recoveries_max`), since each
  waits for bookies and ZooKeeper most of its time: with 32, the former default, 1,000 topics took 20 and 23 s, and a quarter of the core stayed idle. Bookies that answer too late make it recover ledgers again, and clients that
  were refused meanwhile come back after pauses that grow.
- A service URL that also names the killed broker costs some of 1,000 topics a minute more: pulsar-client-cpp asks one of the addresses at each attempt, and doubles its pause up to a minute.
  A Service of Kubernetes, or a load balancer, has ready brokers alone.
"""

MATRIX: Final = """
## What E, Qw and Qa survive

The bookies of one ensemble are killed at once, next to each other in the ensemble, which is the worst choice. From `{test}`, {runs}.

- **Writes, others there**: the cluster has other bookies, so the writer continues with those (it needs E in total).
- **Writes, no others**: the writer continues with Qa bookies of every write set (rule 45), or waits until bookies are back.
- **Reads**: entries that had all Qw copies. The number in brackets says how many of 10 entries are still readable.
- **Recovery**: of a ledger whose writer is gone and whose last entries had reached only Qa bookies, with as many of these bookies lost as possible. Recovery
  refuses, and loses nothing, until bookies are back (rule 6, rule 8). Without other bookies it also needs Qa bookies to accept the last entries.
- Temporary loss: operations that cannot continue wait until the bookies are back. **Lost after the bookies came back: {lost} of all acknowledged entries**, in
  every case.
- Permanent loss: Reads and Recovery show what remains. An entry with all its copies survives the loss of Qw − 1 bookies, an entry that was just acknowledged
  that of Qa − 1.

"""


def load(file: Path = RECORDS) -> list[Record]:
    """All records."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def page(records: Sequence[Record]) -> str:
    """The page that these records make."""
    brokers = [record for record in records if record["kind"] == "broker"]
    records = [record for record in records if record["kind"] != "broker"]
    runs = sorted({record["run"] for record in records})
    losses = [record for record in records if record["kind"] == "loss"]
    matrix = [record for record in records if record["kind"] == "matrix"]
    alls = [record for record in losses if "started_ms" in record]
    return "".join(
        (
            HEAD.format(
                times=_times_of(len(runs)),
                cores=_each(record["cores"] for record in records),
                dates=_each(record["date"] for record in records),
                commits=_each(record["commit"] for record in records),
            ),
            LOSSES,
            _table(
                ("loss", "entries", "lost", "next acknowledgement", "recovered", "copies made anew", "test"),
                _loss_rows(losses),
            ),
            NOTES.format(
                created=_time([record["created_ms"] for record in losses if "created_ms" in record]),
                total=_time([record["next_ack_ms"] for record in alls]),
                started=_time([record["started_ms"] for record in alls]),
            ),
            *_broker_parts(brokers),
            KUBERNETES,
            _table(("loss", "without a receipt", "asked", "lost", "step"), kubernetes_rows()),
            KUBERNETES_NOTES,
            MATRIX.format(
                test=_each(record["test"] for record in matrix),
                runs=_runs_of_cases(len(runs)),
                lost=sum(record["lost_for_a_while"] for record in matrix),
            ),
            _table(("E, Qw, Qa", "lost", *(title for title, _ in _COLUMNS)), _matrix_rows(matrix)),
            "\nOr, as the number of bookies of an ensemble that may be lost at once:\n\n",
            _table(("E, Qw, Qa", *(title for title, _ in _COLUMNS)), _summary_rows(matrix)),
        )
    )


def _loss_rows(losses: Sequence[Record]) -> list[list[str]]:
    rows = []
    for loss in dict.fromkeys(record["loss"] for record in losses):
        same = [record for record in losses if record["loss"] == loss]
        rows.append(
            [
                loss,
                f"{sum(record['acknowledged'] for record in same):,}",
                str(sum(record["lost"] for record in same)),
                _time([record["next_ack_ms"] for record in same]),
                _time([record["recovered_ms"] for record in same]),
                _time([record["healed_ms"] for record in same if "healed_ms" in record]),
                _each(f"`{record['test'].rpartition('::')[2]}`" for record in same),
            ]
        )
    return rows


def _times_of(runs: int) -> str:
    return "of one run" if runs == 1 else f"the median and the maximum of {runs} runs"


def _runs_of_cases(runs: int) -> str:
    return "one run of all cases" if runs == 1 else f"{runs} runs of all cases, all with the same outcome"


def _broker_parts(brokers: Sequence[Record]) -> tuple[str, ...]:
    """What the loss of a broker costs."""
    runs = len({record["run"] for record in brokers})
    head = BROKERS.format(
        times=_times_of(runs),
        cores=_each(record["cores"] for record in brokers),
        dates=_each(record["date"] for record in brokers),
        commits=_each(record["commit"] for record in brokers),
        load=_each(record["load"] for record in brokers),
    )
    titles = ("loss", "acknowledged", "lost", *(title for title, _ in _BROKER_COLUMNS), "test")
    return head, _table(titles, _broker_rows(brokers)), BROKER_NOTES


_BROKER_COLUMNS: Final = (
    ("session over", "expired_ms"),
    ("recovered", "recovered_ms"),
    ("next receipt, half of the topics", "median_ms"),
    ("next receipt, all", "resumed_ms"),
)


def _broker_rows(brokers: Sequence[Record]) -> list[list[str]]:
    rows = []
    for loss in dict.fromkeys(record["loss"] for record in brokers):
        same = [record for record in brokers if record["loss"] == loss]
        rows.append(
            [
                loss,
                f"{sum(record['acknowledged'] for record in same):,}",
                str(sum(record["lost"] for record in same)),
                *(_time([each[key] for each in same if key in each]) for _, key in _BROKER_COLUMNS),
                _each(f"`{record['test'].rpartition('::')[2]}`" for record in same),
            ]
        )
    return rows


_COLUMNS: Final = (
    ("writes, others there", "writes"),
    ("writes, no others", "writes_alone"),
    ("reads", "reads"),
    ("recovery, others there", "recovers"),
    ("recovery, no others", "recovers_alone"),
)


def _matrix_rows(matrix: Sequence[Record]) -> list[list[str]]:
    rows = []
    for quorum in QUORUMS:
        for lost in range(1, quorum[0] + 1):
            same = _of(matrix, quorum, lost)
            cells = [_yes_or_no(same, field) for _, field in _COLUMNS]
            if "no" in cells[2]:
                cells[2] += f" ({_each(str(record['kept_entries']) for record in same)})"
            rows.append([_name(quorum), str(lost), *cells])
    return rows


def _summary_rows(matrix: Sequence[Record]) -> list[list[str]]:
    rows = []
    for quorum in QUORUMS:
        survived = []
        for _, field in _COLUMNS:
            bad = [n for n in range(1, quorum[0] + 1) if not all(r[field] for r in _of(matrix, quorum, n))]
            survived.append(str(min(bad) - 1) if bad else f"{quorum[0]} (all)")
        rows.append([_name(quorum), *survived])
    return rows


def _of(matrix: Sequence[Record], quorum: Sequence[int], lost: int) -> list[Record]:
    wanted = [*quorum, lost]
    return [r for r in matrix if [r["ensemble"], r["write"], r["ack"], r["lost"]] == wanted]


def _name(quorum: Sequence[int]) -> str:
    return ", ".join(map(str, quorum))


def _yes_or_no(records: Sequence[Record], field: str) -> str:
    found = {record[field] for record in records}
    return "differs" if len(found) > 1 else "yes" if found == {True} else "**no**"


def _time(values_ms: Sequence[float]) -> str:
    """Median and longest."""
    if not values_ms:
        return ""
    return f"{_unit(median(values_ms))} (at most {_unit(max(values_ms))})"


def _unit(value_ms: float) -> str:
    return f"{value_ms / 1000:.1f} s" if value_ms >= 1000 else f"{value_ms:.0f} ms"


def _each(values: Iterable[Any]) -> str:
    return ", ".join(sorted({str(value) for value in values}))


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
