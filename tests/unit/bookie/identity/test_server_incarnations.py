"""Two processes of one bookie id: an old one that is cut off from ZooKeeper and lives, and its replacement (rule 57)."""

import asyncio
import shutil
from collections.abc import Callable

import pytest
from daybook_bookie.disk.errors import DiskLostError
from daybook_bookie.identity import boot
from daybook_bookie.identity.metadata_link import MetadataLink
from daybook_bookie.store.storage import Storage

from daybook.core.errors import Code, DaybookError
from daybook.core.ledger.metadata import Fragment, LedgerMetadata
from daybook.core.quorum import Quorum
from daybook.metadata.bookies import REPLACEMENT_VALID_MS, BookieDirectory, Cookie
from daybook.metadata.layout import Layout
from daybook.metadata.store.memory import MemoryServer, MemoryStore, MemoryTransport
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.server_kit import KEY, WAIT_S, RunningBookie, frame_of

StartBookie = Callable[..., RunningBookie]


def transport_of(bookie: RunningBookie) -> MemoryTransport:
    """Its connection to the metadata server."""
    transport = bookie.link.store._transport  # type: ignore[attr-defined]  # a ResolvingStore's
    assert isinstance(transport, MemoryTransport)
    return transport


def cut_off(bookie: RunningBookie) -> None:
    """The bookie no longer reaches the metadata server, which gives up its session."""

    async def cut() -> None:
        transport_of(bookie).connection_changed(connected=False)
        bookie.metadata.end_session(transport_of(bookie).session.session_id)

    bookie.link.run(cut())


def let_back(bookie: RunningBookie) -> None:
    """It reaches the metadata server again, and is told that its session expired."""

    async def back() -> None:
        transport_of(bookie).session_expired()
        transport_of(bookie).connection_changed(connected=True)

    bookie.link.run(back())


def authorise(server: MemoryServer) -> None:
    """What an administrator does who takes the old process for dead."""

    async def work() -> None:
        store = MemoryStore(server)
        await BookieDirectory(store, Layout("test")).authorise_replacement("b0", by="test", now_ms=0)
        await store.close()

    asyncio.run(work())


def limbo_of(bookie: RunningBookie) -> list[int]:
    """The ledgers that it does not vouch for."""
    marks = bookie.stub.list_limbo(pb.ListLimboRequest(after_ledger=-1), timeout=WAIT_S).ledgers
    return [mark.ledger_id for mark in marks]


def acknowledges(bookie: RunningBookie, ledger_id: int) -> bool:
    """Whether a writer who finds the bookie gets an entry acknowledged."""
    stream = bookie.open_stream()
    return stream.attach(ledger_id) is Code.OK and not stream.add(frame_of(ledger_id, 0, [b"x"]))


def test_rule_57_a_process_that_registers_again_keeps_its_replacement_out(start_bookie: StartBookie) -> None:
    """It would boot empty and be in limbo for nothing that is written to the old one meanwhile."""
    old = start_bookie("old")
    old.register()
    cut_off(old)
    authorise(old.metadata)
    let_back(old)
    old.register()
    with pytest.raises(DaybookError):
        start_bookie("new", server=old.metadata)
    old.create_ledger(1)
    assert acknowledges(old, 1)
    shutil.rmtree(old.directory.with_name("new"))


def test_rule_57_what_an_old_process_acknowledges_is_never_denied(start_bookie: StartBookie) -> None:
    old = start_bookie("old")
    old.register()
    cut_off(old)
    authorise(old.metadata)
    new = start_bookie("new", server=old.metadata)
    new.create_ledger(1)
    let_back(old)
    assert not acknowledges(old, 1) or limbo_of(new) == [1]


def test_rule_57_an_old_process_stops_when_it_finds_its_cookie_replaced(start_bookie: StartBookie) -> None:
    old = start_bookie("old")
    old.register()
    cut_off(old)
    authorise(old.metadata)
    new = start_bookie("new", server=old.metadata)
    let_back(old)
    assert old.failed.wait(WAIT_S)
    assert "was replaced" in old.failures[0]
    new.register()
    assert new.failures == []


def test_rule_57_an_old_process_takes_no_first_frame_while_another_boots(
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has not heard yet names the bookie right after its replacement has listed its ledgers."""
    old = start_bookie("old")
    old.register()
    cut_off(old)
    authorise(old.metadata)
    mark = boot._Boot._mark_limbo
    attached: list[bool] = []

    def mark_and_write(self: boot._Boot, storage: Storage, ledgers: list[int]) -> None:
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
    start_bookie: StartBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the old process may have been the bookie in between."""
    old = start_bookie("old")
    old.register()
    cut_off(old)
    authorise(old.metadata)
    stamp = boot._Boot._stamp
    rounds: list[int] = []

    def lose_the_session_first(self: boot._Boot, cookie: Cookie, judged: boot._Judged) -> None:
        rounds.append(len(judged.ledgers))
        if len(rounds) == 1:
            session_id = self._link.store.session.session_id
            self._link.run(expire(old.metadata, session_id))
            self._link.run(create_ledger(self._link))
        stamp(self, cookie, judged)

    monkeypatch.setattr(boot._Boot, "_stamp", lose_the_session_first)
    new = start_bookie("new", server=old.metadata)
    assert rounds == [0, 1]
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
    for name in ("journal", "store"):
        shutil.rmtree(bookie.directory / name)
        (bookie.directory / name).mkdir()
    bookie.metadata.clock_ms += REPLACEMENT_VALID_MS + 1
    with pytest.raises(DiskLostError):
        bookie._start()
    authorise(bookie.metadata)
    bookie._start()
    assert limbo_of(bookie) == [1]
