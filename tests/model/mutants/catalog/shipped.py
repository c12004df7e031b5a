"""What the client that ships does around its machines, without its rules; seeds that run it have to notice."""

import asyncio
from typing import Any

import pytest

from daybook.client.transport.frame_sender import FrameSender
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId
from daybook.core.reader.lac import LacReader
from daybook.core.reader.view import LedgerView
from daybook.core.repair import judgement as audit_ledger
from daybook.core.repair.judgement import Findings, Reason
from daybook.core.stream import StreamWindow
from tests.model.mutants.catalog.swarms import LEAVING, SHIPPED
from tests.model.mutants.registry import mutant


@mutant(49, swarm=SHIPPED)
def an_append_stream_keeps_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was under way on a stream that ended is acknowledged by the answers of the next one."""
    end = FrameSender._end

    def keep(self: Any, task: asyncio.Task[None]) -> None:
        window = self._window
        self._window = StreamWindow()
        end(self, task)
        self._window = window

    monkeypatch.setattr(FrameSender, "_end", keep)


@mutant(59, swarm=SHIPPED)
def a_reader_keeps_the_metadata_of_its_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh takes what the reader knows of the ledger for what was read just now."""

    def refresh(self: LedgerView, *, lenient: bool = False, **_more: Any) -> LacReader:
        return LacReader(self.metadata, lenient=lenient, is_new=True)

    monkeypatch.setattr(LedgerView, "refresh", refresh)


@mutant(
    47,
    "tests/unit/core/repair/test_judgement.py::test_rule_47_that_a_bookie_leaves_hides_no_gap",
    swarm=LEAVING,
)
def that_a_bookie_leaves_hides_its_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a bookie lacks that is to be decommissioned is not looked at."""
    reasons = audit_ledger._reasons

    def first(bookie: BookieId, findings: Findings, gap: IntervalSet | None) -> tuple[Reason, ...]:
        return reasons(bookie, findings, gap)[:1]

    monkeypatch.setattr(audit_ledger, "_reasons", first)
