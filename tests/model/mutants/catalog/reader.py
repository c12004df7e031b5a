"""Mutants of a reader: how it keeps up with a ledger that goes on."""

from collections.abc import Callable
from typing import Any

import pytest

from daybook.client.ledger import Ledger
from daybook.client.transport import read_answer
from daybook.core.effects import LacEffect, LacKnown, MetadataKnown
from daybook.core.format import parted, payload_run
from daybook.core.format.entries import EntryRun, payload_sizes
from daybook.core.format.frame import Buffer
from daybook.core.format.parted import PartedFrame
from daybook.core.format.payload_run import PayloadRun
from daybook.core.ids import BookieId
from daybook.core.reader.lac import LacReader
from daybook.core.reader.reader import LedgerReader
from daybook.core.reader.suspects import Suspects
from daybook.core.reader.view import LedgerView
from tests.model.mutants.catalog.swarms import SHIPPED
from tests.model.mutants.registry import around, instead_of, mutant


@mutant(
    59, "tests/unit/core/reader/test_lac.py::test_rule_59_a_refresh_asks_the_ensemble_that_metadata_names_now"
)
def a_refresh_trusts_the_metadata_of_the_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bookies of the ensemble that was current when the ledger was opened are asked, and metadata is not."""
    ask = LacReader._ask

    def start(self: LacReader) -> list[LacEffect]:
        return ask(self)

    monkeypatch.setattr(LacReader, "start", start)


@mutant(
    59,
    "tests/unit/core/reader/test_ledger_view.py::test_rule_59_what_one_part_finds_out_the_next_one_begins_with",
    not_simulated="a read that meets an old ensemble looks at the metadata by itself, only later",
)
@around(LedgerView, "learn")
def what_a_part_finds_out_stays_with_it(
    learn: Callable[..., None], self: LedgerView, effect: LacKnown | MetadataKnown
) -> None:
    """Each read of a reader that was opened long ago begins with the old ensembles again."""
    if not isinstance(effect, MetadataKnown) or effect.metadata.is_closed:
        learn(self, effect)


@mutant(
    59,
    "tests/unit/client/test_reader_handle.py::test_rule_59_the_own_handle_shows_nothing_that_is_only_sent",
    swarm=SHIPPED,
)
@around(LedgerView, "follow_writer")
def the_own_handle_shows_what_is_only_sent(follow: Callable[[LedgerView], bool], self: LedgerView) -> bool:
    """Whoever wrote the entries knows them, so a reader in the writer's process gets all of them."""
    if isinstance(self._writer, Ledger):
        self.last_add_confirmed = max(self.last_add_confirmed, self._writer._writer.last_add_pushed)
    return follow(self)


@mutant(
    44,
    "tests/unit/core/format/test_payload_run.py::test_rule_44_damage_from_before_the_checksum_of_the_body_is_found",
    not_simulated="few frames of a seed have 32 entries of one size",
)
def payloads_of_one_size_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one checksum that stands for those of all entries is taken as right."""
    monkeypatch.setattr(payload_run, "are_sound", lambda *_: True)


@mutant(
    44,
    "tests/unit/core/format/test_parted.py::test_rule_44_a_damaged_payload_is_not_passed_on_with_the_others",
    not_simulated="the simulated network has no lane, over which such messages travel",
)
def payloads_that_come_last_are_passed_on_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the checksums of entries have said."""

    def joined_in_place(message: Buffer, frames: list[PartedFrame], found: list[EntryRun]) -> EntryRun:
        payloads = memoryview(message)[frames[0].payloads_at :]
        size_bytes = payload_sizes(found[0])[0]
        first = frames[0].header.first_entry
        ids = range(first, first + len(payloads) // size_bytes)
        return EntryRun(ids, PayloadRun(size_bytes, [payloads]))

    monkeypatch.setattr(parted, "joined_in_place", joined_in_place)
    monkeypatch.setattr(read_answer, "joined_in_place", joined_in_place)


@mutant(
    63,
    "tests/unit/core/reader/test_suspects.py::test_rule_63_a_suspicion_ends",
    not_simulated="it costs time and spreads reads badly; what is read is the same",
)
@instead_of(Suspects, "failures")
def a_suspicion_never_ends(self: Suspects, bookie: BookieId, _now_ms: int) -> int:
    """A bookie that failed once is asked last for as long as the client lives."""
    return self._known.get(bookie, (0, 0))[0]


@mutant(
    63,
    "tests/unit/core/reader/test_suspects.py::test_rule_63_the_next_read_begins_with_another_replica",
    not_simulated="it costs time; what is read is the same",
)
@around(LedgerView, "read")
def each_read_finds_out_for_itself(
    read: Callable[..., LedgerReader], self: LedgerView, *span: int, **options: Any
) -> LedgerReader:
    """What a read learned of bookies ends with it, so that each read waits for the silent one."""
    self._suspects = Suspects()
    return read(self, *span, **options)


@mutant(
    63,
    "tests/unit/core/reader/test_suspects.py::test_rule_63_a_bookie_has_its_time_from_the_request_on",
    not_simulated="it costs time and requests; what is read is the same",
)
@instead_of(LedgerReader, "pass_time")
def requests_have_the_time_of_the_last_tick(_self: LedgerReader, _now_ms: int) -> None:
    """While data flows no `Tick` comes; the next one finds every request as old as the one before."""
