"""Histories as files, so that what a run saw is judged by another process, later, as often as one likes.

Usage: python -m tests.process.integration.recorded FILE …; the exit code is 1 if a promise was broken. A line is one ledger:
{"ledger": 7, "submitted": ["YQ==", …], "acknowledged": [[0, 2], …], "reads": {"the tail": [[0], [1, "Yg=="], …]},
"closes": [{"last_entry": 2, "length": 9, "entries": [[0], …]}]}. Payloads are base64; an entry that was seen as it was
submitted under its id is its id alone.
"""

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.process.integration.history import Close, History, LedgerHistory, Seen


def save(history: History, file: Path) -> None:
    """Write all of it."""
    with file.open("w", encoding="ascii") as out:
        for ledger_id, ledger in sorted(history.ledgers.items()):
            out.write(json.dumps(_to_record(ledger_id, ledger)) + "\n")


def load(file: Path) -> History:
    """What `save` wrote. Raises ValueError and KeyError for anything else."""
    history = History()
    with file.open(encoding="ascii") as lines:
        for line in lines:
            record = json.loads(line)
            history.ledgers[record["ledger"]] = _from_record(record)
    return history


def _to_record(ledger_id: int, ledger: LedgerHistory) -> dict[str, Any]:
    def packed(entries: Sequence[Seen]) -> list[list[int | str]]:
        return [_pack(ledger.submitted, *seen) for seen in entries]

    return {
        "ledger": ledger_id,
        "submitted": [b64encode(payload).decode() for payload in ledger.submitted],
        "acknowledged": ledger.acknowledged,
        "reads": {reader: packed(seen) for reader, seen in sorted(ledger.reads.items())},
        "closes": [
            {"last_entry": close.last_entry, "length": close.length, "entries": packed(close.entries)}
            for close in ledger.closes
        ],
    }


def _from_record(record: dict[str, Any]) -> LedgerHistory:
    submitted = [b64decode(payload) for payload in record["submitted"]]

    def unpacked(entries: list[list[Any]]) -> list[Seen]:
        return [(seen[0], b64decode(seen[1]) if len(seen) > 1 else submitted[seen[0]]) for seen in entries]

    return LedgerHistory(
        submitted,
        [(first, last) for first, last in record["acknowledged"]],
        {reader: unpacked(seen) for reader, seen in record["reads"].items()},
        [Close(each["last_entry"], each["length"], unpacked(each["entries"])) for each in record["closes"]],
    )


def _pack(submitted: list[bytes], entry_id: int, payload: bytes) -> list[int | str]:
    as_submitted = 0 <= entry_id < len(submitted) and submitted[entry_id] == payload
    return [entry_id] if as_submitted else [entry_id, b64encode(payload).decode()]


def main(files: Sequence[str]) -> int:
    """See the module."""
    broken = 0
    for name in files:
        found = load(Path(name)).judge()
        broken += len(found)
        for violation in found:
            print(f"{name}: {violation.kind.name} {violation}")
    print(f"{len(files)} histories, {broken} broken promises")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
