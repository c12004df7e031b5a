"""What the client that ships does around its machines, without its rules; seeds that run it have to notice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from daybook.client.transport import gathering
from daybook.client.transport.frame_sender import FrameSender
from daybook.core.format.intervals import IntervalSet
from daybook.core.ids import BookieId
from daybook.core.reader.lac import LacReader
from daybook.core.reader.view import LedgerView
from daybook.core.repair import judgement as audit_ledger
from daybook.core.repair.judgement import Findings, Reason
from daybook.core.stream import StreamWindow
from tests.model.mutants.catalog.swarms import LEAVING, SHIPPED
from tests.model.mutants.registry import around, instead_of, mutant


@mutant(49, swarm=SHIPPED)
@around(FrameSender, "_end")
def an_append_stream_keeps_its_window(end: Any, self: Any, task: asyncio.Task[None]) -> None:
    """What was under way on a stream that ended is acknowledged by the answers of the next one."""
    window = self._window
    self._window = StreamWindow()
    end(self, task)
    self._window = window


@mutant(
    7,
    "tests/unit/client/test_gathering.py::test_rule_07_a_call_without_an_answer_does_not_keep_others_waiting",
    not_simulated="a recovery that waits for another one's bookie ends later, at the same entry",
    slow=True,
)
def questions_wait_for_the_call_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one recovery asks of a bookie waits until that has answered the questions of others."""
    monkeypatch.setattr(gathering, "GATHER_S", 3600.0)


@mutant(59, swarm=SHIPPED)
@instead_of(LedgerView, "refresh")
def a_reader_keeps_the_metadata_of_its_opening(
    self: LedgerView, *, lenient: bool = False, **_more: Any
) -> LacReader:
    """A refresh takes what the reader knows of the ledger for what was read just now."""
    return LacReader(self.metadata, lenient=lenient, is_new=True)


@mutant(
    47,
    "tests/unit/core/repair/test_judgement.py::test_rule_47_that_a_bookie_leaves_hides_no_gap",
    swarm=LEAVING,
)
@around(audit_ledger, "reasons_of")
def that_a_bookie_leaves_hides_its_gaps(
    reasons: Callable[..., tuple[Reason, ...]], bookie: BookieId, findings: Findings, gap: IntervalSet | None
) -> tuple[Reason, ...]:
    """What a bookie lacks that is to be decommissioned is not looked at."""
    return reasons(bookie, findings, gap)[:1]
