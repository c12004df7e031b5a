"""How a bookie may start: cookies, incarnations, replacements, limbo; and what survives a restart."""

from collections.abc import Callable
from pathlib import Path

import pytest
from daybook_bookie.disk.directory import DirectoryLock
from daybook_bookie.disk.errors import CookieError
from daybook_bookie.identity import boot

from daybook.core.errors import Code
from daybook.core.format.frame import FLAG_RECOVERY
from daybook.metadata.store.memory import MemoryServer
from daybook.wire import bookie_pb2 as pb
from tests.unit.bookie.identity.kit import authorise, fill, limbo_of, replaceable, restore, snapshot, wipe
from tests.unit.bookie.server_kit import RunningBookie, frame_of
from tests.unit.bookie.stream_kit import WAIT_S

StartBookie = Callable[..., RunningBookie]


@pytest.fixture
def lost(bookie: RunningBookie) -> RunningBookie:
    """A stopped bookie that lost its disks after two entries of ledger 1, and may be replaced."""
    return replaceable(bookie)


def die(*_: object, **__: object) -> None:
    """Be killed here."""
    raise KeyboardInterrupt


def test_what_was_acknowledged_survives_a_restart_before_any_flush(bookie: RunningBookie) -> None:
    fill(bookie)
    bookie.bookie.table.flush_wanted.clear()
    bookie.restart()
    assert bookie.read(1, 0, 9)[1] == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize(
    ("gone", "why"),
    [(("journal", "store"), "has served before"), (("journal",), "journal"), (("store",), "store")],
    ids=["both", "journal", "store"],
)
def test_rule_29_a_bookie_that_lost_directories_does_not_start_by_itself(
    bookie: RunningBookie, gone: tuple[str, ...], why: str
) -> None:
    fill(bookie)
    bookie.stop()
    wipe(bookie, *gone)
    with pytest.raises(CookieError, match=why):
        bookie._start()


def test_rule_29_directories_of_another_bookie_are_refused(
    bookie: RunningBookie, start_bookie: StartBookie
) -> None:
    fill(bookie)
    bookie.stop()
    with pytest.raises(CookieError, match="another bookie"):
        start_bookie(server=bookie.metadata, bookie_id="b1")


def test_a_drained_bookie_that_comes_back_on_its_old_directories_takes_writes(bookie: RunningBookie) -> None:
    """It was made read-only to be drained, and its cookie went with it; what starts now is another bookie of that name."""
    bookie.stub.set_read_only(pb.SetReadOnlyRequest(read_only=True, reason="decommission"), timeout=WAIT_S)

    async def forget() -> None:
        cookie = await bookie.link.bookies.cookie("b0")
        assert cookie is not None
        await bookie.link.bookies.delete_cookie("b0", cookie.version)

    bookie.link.run(forget())
    authorise(bookie.metadata)
    bookie.restart()
    assert bookie.bookie.availability.is_writable
    bookie.restart()
    assert bookie.bookie.availability.is_writable


def test_rule_29_an_authorised_replacement_is_in_limbo_for_all_that_names_it(bookie: RunningBookie) -> None:
    bookie.create_ledger(2, bookies=("b0", "b9"))
    bookie.create_ledger(3, bookies=("b9",))
    replaceable(bookie)._start()
    assert limbo_of(bookie) == [1, 2]
    header, entries, _ = bookie.read(1, 0, 9)
    assert (header.limbo, entries) == (True, []), "what it lacks proves nothing"
    answer = bookie.fence(1)
    assert (Code(answer.code), answer.limbo) == (Code.OK, True), "a fence counts all the same"
    stream = bookie.open_stream()
    assert stream.attach(2) is Code.OK
    assert stream.add(frame_of(2, 0, [b"x"])) == {0: Code.LIMBO}
    assert stream.attach(2, recovery=True) is Code.OK
    assert stream.add(frame_of(2, 0, [b"x"], flags=FLAG_RECOVERY)) == {}


def test_rule_29_limbo_ends_by_its_nonce_only_and_survives_restarts(lost: RunningBookie) -> None:
    lost._start()
    lost.restart()
    (mark,) = lost.stub.list_limbo(pb.ListLimboRequest(after_ledger=-1), timeout=WAIT_S).ledgers
    wrong = pb.ClearLimboRequest(ledger_id=1, nonce="00" * 16)
    assert not lost.stub.clear_limbo(wrong, timeout=WAIT_S).cleared
    right = pb.ClearLimboRequest(ledger_id=1, nonce=mark.nonce)
    assert lost.stub.clear_limbo(right, timeout=WAIT_S).cleared
    assert not lost.stub.clear_limbo(right, timeout=WAIT_S).cleared, "once"
    lost.restart()
    assert not lost.read(1, 0, 0)[0].limbo
    assert lost.metric("limbo_ledgers") == 0


def test_rule_29_an_authorisation_is_used_once(lost: RunningBookie) -> None:
    lost._start()
    lost.stop()
    wipe(lost)
    with pytest.raises(CookieError):
        lost._start()


def test_rule_29_an_old_copy_of_the_directories_is_refused_after_a_replacement(
    bookie: RunningBookie, tmp_path: Path
) -> None:
    fill(bookie)
    authorise(bookie.metadata)
    bookie.stop()
    snapshot(bookie, tmp_path / "old")
    wipe(bookie)
    bookie._start()
    bookie.stop()
    restore(bookie, tmp_path / "old")
    with pytest.raises(CookieError, match="before or after a replacement"):
        bookie._start()


@pytest.mark.parametrize("step", ["_mark_limbo", "_stamp", "_finish"])
def test_rule_29_a_replacement_that_is_killed_half_way_begins_again(
    lost: RunningBookie, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:

    with monkeypatch.context() as patch:
        patch.setattr(boot._Boot, step, die)
        with pytest.raises(KeyboardInterrupt):
            lost._start()
    lost._start()
    assert lost.read(1, 0, 0)[0].limbo
    lost.restart()
    assert lost.read(1, 0, 0)[0].limbo


@pytest.mark.parametrize("step", ["_open_disks", "_stamp", "_finish"])
def test_a_first_start_that_is_killed_half_way_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, start_bookie: StartBookie
) -> None:
    server = MemoryServer()
    with monkeypatch.context() as patch:
        patch.setattr(boot._Boot, step, die)
        with pytest.raises(KeyboardInterrupt):
            start_bookie(server=server)
    bookie = start_bookie(server=server)
    bookie.create_ledger(1)
    fill(bookie)


def test_two_processes_cannot_share_directories(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path / "journal", tmp_path / "store")
    with pytest.raises(CookieError, match="another process uses"):
        DirectoryLock(tmp_path / "other", tmp_path / "store")
    first.close()
    DirectoryLock(tmp_path / "store").close()


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CookieError, match="cannot be used as a directory"):
        DirectoryLock(tmp_path / "file")
