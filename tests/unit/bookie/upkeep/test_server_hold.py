"""After a restore of the metadata bookies delete nothing, until a person confirms it."""

import pytest

from daybook.core.errors import Code
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.hold import begin_hold, end_hold, read_hold
from daybook.metadata.store.store import Versioned
from tests.unit.bookie.server_kit import RunningBookie
from tests.unit.bookie.upkeep.test_server_gc import collect, fill, held, repaired_away


def hold(bookie: RunningBookie) -> None:
    """What an import does first."""
    bookie.link.run(begin_hold(bookie.link.store, bookie.link.layout, now_ms=2, exported_at_ms=1))


def confirm(bookie: RunningBookie) -> None:
    """What a person does last."""

    async def end() -> None:
        found = await read_hold(bookie.link.store, bookie.link.layout)
        assert found is not None
        await end_hold(bookie.link.store, bookie.link.layout, found)

    bookie.link.run(end())


def test_rule_68_nothing_is_collected_while_a_restore_is_not_confirmed(bookie: RunningBookie) -> None:
    fill(bookie, 1)
    hold(bookie)
    bookie.delete_ledger(1)
    for _ in range(2):
        answer = collect(bookie)
        assert (Code(answer.code), list(answer.deleted), held(bookie)) == (Code.UNAVAILABLE, [], [1])
        assert "daybook metadata confirm" in answer.detail
        bookie.restart()
    confirm(bookie)
    assert list(collect(bookie).deleted) == [1]


def test_rule_68_a_restore_that_begins_and_ends_during_a_cycle_stops_the_cycle(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger was not there when the cycle looked for it, because the import had not written it yet."""
    fill(bookie, 1)
    bookie.delete_ledger(1)

    def find_nothing_yet(_: int) -> LedgerMetadata | None:
        hold(bookie)
        confirm(bookie)
        return None

    with monkeypatch.context() as patch:
        patch.setattr(bookie.link, "read_ledger", find_nothing_yet)
        answer = collect(bookie)
    assert (list(answer.deleted), "restored during the cycle" in answer.detail) == ([], True)
    assert list(collect(bookie).deleted) == [1]


def test_rule_68_no_copy_is_over_replicated_while_a_restore_is_not_confirmed(
    bookie: RunningBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repair that the restored metadata has forgotten placed it here."""
    repaired_away(bookie, 2)
    hold(bookie)
    assert collect(bookie).surplus_entries == 0
    confirm(bookie)
    raise_version = bookie.link.raise_version

    def restore_meanwhile(current: Versioned[LedgerMetadata]) -> int:
        hold(bookie)
        return raise_version(current)

    with monkeypatch.context() as patch:
        patch.setattr(bookie.link, "raise_version", restore_meanwhile)
        assert collect(bookie).surplus_entries == 0
    confirm(bookie)
    assert collect(bookie).surplus_entries == 2


def test_a_hold_that_cannot_be_read_holds(bookie: RunningBookie) -> None:
    fill(bookie, 1)
    bookie.delete_ledger(1)
    link = bookie.link
    link.run(link.store.create(link.layout.collection_hold, b"what is this?"))
    answer = collect(bookie)
    assert (Code(answer.code), list(answer.deleted)) == (Code.UNAVAILABLE, [])
    assert "hold of the collection" in answer.detail
