"""A few seconds of chaos on every run of the tests; `make chaos` makes minutes of it, with many seeds."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.process.chaos.faults import Deck
from tests.process.chaos.records import VARIABLE

SEED = 3
MINUTES = 0.15


def test_every_kind_of_fault_comes_before_one_comes_again() -> None:
    kinds = [f"kind {n}" for n in range(14)]
    deck = Deck(kinds, random.Random(1))
    rounds = [[deck.deal() for _ in kinds] for _ in range(3)]
    assert [sorted(each) for each in rounds] == [sorted(kinds)] * 3
    assert rounds[0] != rounds[1]


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_some_seconds_of_chaos_break_no_promise(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "tests.process.chaos", "--seed", str(SEED), "--minutes", str(MINUTES)],
        cwd=ROOT,
        env={**os.environ, VARIABLE: str(records)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    record = json.loads(records.read_text(encoding="utf-8"))
    assert record["violations"] == 0
    assert record["counts"]["acknowledged entries"] > 0
    assert record["counts"]["audited ledgers"] > 0
    assert any(name.startswith("fault: ") for name in record["counts"])
