"""Histories survive their file, and whatever is done wrong to a sound one, at random, is reported by its kind."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.process.integration.history import History, Kind, LedgerHistory
from tests.process.integration.recorded import load, save

LEDGERS = 3
ENTRIES = 40
SEEDS = range(30)


def sound(rng: random.Random) -> History:
    """Three ledgers as a run leaves them: acknowledged in groups, some entries unknown, read by two readers."""
    made = History()
    for ledger_id in range(LEDGERS):
        payloads = [b"%d/%d " % (ledger_id, n) + rng.randbytes(rng.randrange(20)) for n in range(ENTRIES)]
        made.created(ledger_id)
        made.submitted(ledger_id, payloads)
        acknowledged = rng.randrange(10, ENTRIES - 2)
        first = 0
        while first < acknowledged:
            last = min(first + rng.randrange(7), acknowledged - 1)
            made.acknowledged(ledger_id, first, last)
            first = last + 1
        end = rng.randrange(acknowledged, ENTRIES)
        there = list(enumerate(payloads[:end]))
        for entry_id, payload in there[: rng.randrange(5, acknowledged)]:
            made.read("the tail", ledger_id, entry_id, payload)
        for entry_id, payload in there[3:9]:
            made.read("another", ledger_id, entry_id, payload)
        made.closed(ledger_id, end - 1, sum(len(payload) for _, payload in there), there)
    return made


def drop_acknowledged(ledger: LedgerHistory, rng: random.Random) -> None:
    """An acknowledged entry is gone, and everything behind it, as after a close that was too short."""
    close = ledger.closes[0]
    keep = rng.randrange(ledger.acknowledged[-1][1] + 1)
    del close.entries[keep:]
    close.last_entry = keep - 1
    close.length = sum(len(payload) for _, payload in close.entries)
    ledger.reads.clear()


def drop_from_within(ledger: LedgerHistory, rng: random.Random) -> None:
    """One entry cannot be read."""
    close = ledger.closes[0]
    del close.entries[rng.randrange(close.last_entry)]


def swap(ledger: LedgerHistory, rng: random.Random) -> None:
    """Two neighbours have changed places."""
    entries = ledger.closes[0].entries
    at = rng.randrange(len(entries) - 1)
    (one, first), (two, second) = entries[at : at + 2]
    entries[at : at + 2] = [(one, second), (two, first)]


def invent(ledger: LedgerHistory, rng: random.Random) -> None:
    """An entry that nobody submitted, behind all that were."""
    close = ledger.closes[0]
    close.entries = [*enumerate(ledger.submitted), (len(ledger.submitted), rng.randbytes(12))]
    close.last_entry = len(ledger.submitted)
    close.length = sum(len(payload) for _, payload in close.entries)


def repeat(ledger: LedgerHistory, rng: random.Random) -> None:
    """An entry is there again in the place of a later one."""
    close = ledger.closes[0]
    one, two = sorted(rng.sample(range(len(close.entries)), 2))
    close.entries[two] = (two, close.entries[one][1])
    close.length = sum(len(payload) for _, payload in close.entries)


def flip(ledger: LedgerHistory, rng: random.Random) -> None:
    """A bit of an entry."""
    entries = ledger.closes[0].entries
    at = rng.randrange(len(entries))
    payload = bytearray(entries[at][1])
    payload[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
    entries[at] = (at, bytes(payload))


def read_too_early(ledger: LedgerHistory, rng: random.Random) -> None:
    """A reader saw an entry that the close then cut off."""
    close = ledger.closes[0]
    reader = [(n, payload) for n, payload in enumerate(ledger.submitted[: close.last_entry + 2])]
    ledger.reads["a hasty one"] = reader


WRONGS: list[tuple[Callable[[LedgerHistory, random.Random], None], Kind]] = [
    (drop_acknowledged, Kind.LOST),
    (drop_from_within, Kind.LOST),
    (swap, Kind.REORDERED),
    (invent, Kind.PHANTOM),
    (repeat, Kind.DUPLICATE),
    (flip, Kind.CHANGED),
    (read_too_early, Kind.PHANTOM),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_history_is_the_same_in_its_file_and_passes(tmp_path: Path, seed: int) -> None:
    history = sound(random.Random(seed))
    save(history, tmp_path / "history.jsonl")
    again = load(tmp_path / "history.jsonl")
    assert again.ledgers == history.ledgers
    assert again.judge() == []


@pytest.mark.parametrize(("wrong", "kind"), WRONGS, ids=[wrong.__name__ for wrong, _ in WRONGS])
def test_what_is_done_wrong_to_a_sound_history_is_told(
    tmp_path: Path, wrong: Callable[[LedgerHistory, random.Random], None], kind: Kind
) -> None:
    for seed in SEEDS:
        rng = random.Random(seed)
        history = sound(rng)
        before = deepcopy(history.ledgers)
        harmed = rng.randrange(LEDGERS)
        wrong(history.ledgers[harmed], rng)
        assert history.ledgers != before
        save(history, tmp_path / "history.jsonl")
        found = load(tmp_path / "history.jsonl").judge()
        assert kind in {violation.kind for violation in found}, f"seed {seed}: {found}"
        assert {violation.ledger_id for violation in found} == {harmed}, "the others are sound"


def test_the_judge_is_a_command(tmp_path: Path) -> None:
    history = sound(random.Random(1))
    files = [tmp_path / "sound.jsonl", tmp_path / "broken.jsonl"]
    save(history, files[0])
    flip(history.ledgers[2], random.Random(1))
    save(history, files[1])
    done = [
        subprocess.run(
            [sys.executable, "-m", "tests.process.integration.recorded", str(file)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        for file in files
    ]
    assert [each.returncode for each in done] == [0, 1]
    assert "CHANGED" in done[1].stdout
    assert all(json.loads(line)["ledger"] in range(LEDGERS) for line in files[0].open(encoding="ascii"))
