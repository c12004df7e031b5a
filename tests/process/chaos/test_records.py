"""The lines that runs leave behind keep their format: docs are generated from them."""

import json
from pathlib import Path

import pytest

from tests.process.chaos.records import VARIABLE, write_record


def test_a_run_is_one_line_of_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "new" / "records.jsonl"))
    write_record("power cuts", 7, {"lost sectors": 3, "cuts": 2}, 0, 1.26)
    file = write_record("chaos", 8, {}, 1, 2)
    first, second = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert list(first) == ["kind", "seed", "counts", "violations", "seconds", "commit", "date"]
    assert (first["kind"], first["seed"], first["violations"], first["seconds"]) == ("power cuts", 7, 0, 1.3)
    assert first["counts"] == {"cuts": 2, "lost sectors": 3}
    assert (second["kind"], second["violations"]) == ("chaos", 1)
