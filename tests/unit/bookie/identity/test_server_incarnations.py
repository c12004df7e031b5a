"""Two processes of one bookie id: an old one that is cut off from ZooKeeper and lives, and its replacement (rule 57)."""

import shutil
from collections.abc import Callable, Sequence

import pytest
from daybook_bookie.disk.errors import DiskLostError
from daybook_bookie.identity import boot
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.store.storage import Storage

from daybook.core.errors import Code, DaybookError
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.metadata.bookies import REPLACEMENT_VALID_MS, Cookie
from daybook.metadata.store.memory import MemoryServer
from tests.unit.bookie.identity.kit import authorise, cut_off, let_back, limbo_of, wipe
from tests.unit.bookie.server_kit import RunningBookie, frame_of
from tests.unit.bookie.stream_kit import KEY, WAIT_S

StartBookie = Callable[..., RunningBookie]


@pytest.fixture
def old(start_bookie: StartBookie) -> RunningBookie:
    """A registered bookie that lost its connection, and that an administrator takes for dead."""
    bookie = start_bookie("old")
    bookie.register()
    cut_off(bookie)
    authorise(bookie.metadata)
    return bookie


def acknowledges(bookie: RunningBookie, ledger_id: int) -> bool:
    """Whether a writer who finds the bookie gets an entry acknowledged."""
    stream = bookie.open_stream()
    return stream.attach(ledger_id) is Code.OK and not stream.add(frame_of(ledger_id, 0, [b"x"]))


def test_rule_57_a_process_that_registers_again_keeps_its_replacement_out(
    old: RunningBookie, start_bookie: StartBookie
) -> None:
    """It would boot empty and be in limbo for nothing that is written to the old one meanwhile."""
    let_back(old)
    old.register()
    with pytest.raises(DaybookError):
        start_bookie("new", server=old.metadata)
    old.create_ledger(1)
    assert acknowledges(old, 1)
    shutil.rmtree(old.directory.with_name("new"))


def test_rule_57_what_an_old_process_acknowledges_is_never_denied(
    old: RunningBookie, start_bookie: StartBookie
) -> None:
    new = start_bookie("new", server=old.metadata)
    new.create_ledger(1)
    let_back(old)
    assert not acknowledges(old, 1) or limbo_of(new) == [1]


def test_rule_57_an_old_process_stops_when_it_finds_its_cookie_replaced(
    old: RunningBookie, start_bookie: StartBookie
) -> None:
    new = start_bookie("new", server=old.metadata)
    let_back(old)
    assert old.failed.wait(WAIT_S)
    assert "was replaced" in old.failures[0]
    new.register()
    assert new.failures == []


def test_rule_57_an_old_process_takes_no_first_frame_while_another_boots(
    old: RunningBookie, start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with old metadata names the bookie right after its replacement has listed its ledgers."""
    mark = boot._Boot._mark_limbo
    attached: list[bool] = []

    def mark_and_write(self: boot._Boot, storage: Storage, ledgers: Sequence[int]) -> None:
        mark(self, storage, ledgers)
        let_back(old)
        old.create_ledger(1)
        attached.append(acknowledges(old, 1))

    monkeypatch.setattr(boot._Boot, "_mark_limbo", mark_and_write)
    new = start_bookie("new", server=old.metadata)
    assert attached == [False]
    assert limbo_of(new) == []
    assert old.failed.is_set()


def test_rule_57_a_cookie_is_stamped_only_under_the_claim_that_limbo_was_listed_under(
    old: RunningBookie, start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the old process may have been the bookie in between."""
    stamp = boot._Boot._stamp
    listings: list[int] = []

    def lose_the_session_first(self: boot._Boot, cookie: Cookie, judged: boot._Judged) -> None:
        listings.append(len(judged.ledgers))
        if len(listings) == 1:
            session_id = self._link.store.session.session_id
            self._link.run(expire(old.metadata, session_id))
            self._link.run(create_ledger(self._link))
        stamp(self, cookie, judged)

    monkeypatch.setattr(boot._Boot, "_stamp", lose_the_session_first)
    new = start_bookie("new", server=old.metadata)
    assert listings == [0, 1]
    assert limbo_of(new) == [0]


async def create_ledger(link: MetadataLink) -> None:
    """Ledger 0, which names the bookie."""
    await link.ledgers.create_ledger(
        lambda number: LedgerMetadata(number, Quorum(1, 1, 1), (Fragment(0, 0, ("b0",)),), password_hash=KEY)
    )


async def expire(server: MemoryServer, session_id: int) -> None:
    """End a session on the event loop of its store."""
    server.expire(session_id)


def test_rule_57_a_leave_that_was_not_used_in_time_lets_nobody_start(bookie: RunningBookie) -> None:
    authorise(bookie.metadata)
    bookie.stop()
    wipe(bookie)
    bookie.metadata.clock_ms += REPLACEMENT_VALID_MS + 1
    with pytest.raises(DiskLostError):
        bookie._start()
    authorise(bookie.metadata)
    bookie._start()
    assert limbo_of(bookie) == [1]
