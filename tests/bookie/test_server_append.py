"""Appending over the wire: attach, frames in, answers out, and everything a client may do wrong."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from daybook.core.errors import Code
from tests.bookie.server_kit import RunningBookie, frame_of


@pytest.fixture
def bookie(tmp_path: Path) -> Iterator[RunningBookie]:
    running = RunningBookie(tmp_path)
    running.create_ledger(1)
    yield running
    running.stop()


def test_what_was_appended_is_read_back(bookie: RunningBookie) -> None:
    stream = bookie.open_stream()
    assert stream.hello.bookie_id == "b0"
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a", b"b"]), frame_of(1, 2, [b"c"], lac=1, length=2)) == {}
    header, entries, damaged = bookie.read(1, 0, 10)
    assert (header.code, header.through, header.last_add_confirmed, header.length_at_lac) == (
        Code.OK,
        10,
        1,
        2,
    )
    assert [(e.entry_id, e.data) for e in entries] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert damaged == []
    stream.close()
