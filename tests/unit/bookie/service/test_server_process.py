"""The process: kills, exits, probes, metrics, and every reason not to start said clearly."""

import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daybook.core.bookie.exits import EXIT_DISK_LOST, EXIT_FORGOTTEN, EXIT_NOT_STARTED, EXIT_STORAGE_FAILED
from daybook.core.errors import Code
from daybook.core.format.frame import frame_entry_ids, split_message
from daybook.local.zookeeper import EmbeddedZooKeeper
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.store.store import MetadataStore
from daybook.runtime.health import LIVENESS, READINESS
from daybook.wire import bookie_pb2 as pb
from daybook.wire.messages import decode_read
from tests.fixtures.forked import Forked
from tests.unit.bookie.server_kit import eventually, frame_of
from tests.unit.bookie.service.process_kit import (
    LAYOUT,
    PROCESS_S,
    BookieProcess,
    create_ledger,
    format_cluster,
    with_store,
)
from tests.unit.bookie.stream_kit import KEY, WAIT_S, Stream

pytestmark = pytest.mark.integration

MakeBookie = Callable[..., BookieProcess]


@pytest.fixture
def make_bookie(tmp_path: Path, zookeeper: str) -> Iterator[MakeBookie]:
    made: list[BookieProcess] = []

    def make(name: str = "b0", *, formatted: bool = True, **settings: Any) -> BookieProcess:
        if formatted:
            format_cluster(settings.get("zookeeper", zookeeper))
        made.append(BookieProcess(tmp_path / name, **{"zookeeper": zookeeper, **settings}))
        return made[-1]

    yield make
    for bookie in made:
        if bookie.process is not None and bookie.process.poll() is None:
            bookie.process.kill()
            bookie.process.wait()


def start_attached(bookie: BookieProcess, zookeeper: str) -> tuple[BookieProcess, Forked, Stream, int]:
    """Start it; itself, its process, a stream, and the id of a ledger that the stream is attached to."""
    bookie.start()
    assert bookie.process is not None
    ledger_id = create_ledger(zookeeper)
    stream = bookie.open_stream()
    stream.attach(ledger_id)
    return bookie, bookie.process, stream, ledger_id


def read_ids(bookie: BookieProcess, ledger_id: int, last: int) -> list[int]:
    """The entries of the ledger up to `last`."""
    request = pb.ReadRequest(ledger_id=ledger_id, last_entry=last, bytes_max=16 << 20, key=KEY)
    ids: list[int] = []
    for message in bookie.stub.read(request, timeout=WAIT_S):
        header, frames = decode_read(message)
        assert header.code is Code.OK
        for frame, offset in split_message(frames):
            ids += frame_entry_ids(frames, frame, offset)
    return ids


def test_a_kill_loses_nothing_that_was_acknowledged(make_bookie: MakeBookie, zookeeper: str) -> None:
    bookie = make_bookie(flush_bytes=1 << 20)
    bookie.start()
    ledger_id, fenced_id = create_ledger(zookeeper), create_ledger(zookeeper)
    for _ in range(2):
        stream = bookie.open_stream()
        assert stream.attach(ledger_id) is Code.OK
        have = len(read_ids(bookie, ledger_id, 10_000))
        sent = [stream.send(frame_of(ledger_id, n, [bytes(50_000)])) for n in range(have, have + 60)]
        assert stream.settle(sent[40]) == {}
        bookie.end(signal.SIGKILL)
        bookie.start()
        ids = read_ids(bookie, ledger_id, 10_000)
        assert ids[: have + 41] == list(range(have + 41))
        assert ids == list(range(len(ids))), "more may have been durable, but without a hole"
    assert (
        Code(bookie.stub.fence(pb.FenceRequest(ledger_id=fenced_id, key=KEY), timeout=WAIT_S).code) is Code.OK
    )
    bookie.end(signal.SIGKILL)
    bookie.start()
    stream = bookie.open_stream()
    assert stream.attach(fenced_id) is Code.OK
    assert stream.add(frame_of(fenced_id, 0, [b"late"])) == {0: Code.FENCED}, "rule 4"


def test_it_stops_on_request_and_is_ready_and_alive_until_then(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    bookie.start()
    assert (bookie.health(LIVENESS), bookie.health(READINESS)) == ("SERVING", "SERVING")
    stream = bookie.open_stream()
    bookie.stub.set_read_only(pb.SetReadOnlyRequest(read_only=True), timeout=WAIT_S)
    assert bookie.health(READINESS) == "SERVING", "a read-only bookie is ready"
    assert bookie.end(signal.SIGTERM) == 0
    with pytest.raises(Exception, match=r"stream|UNAVAILABLE|CANCELLED"):
        stream.take()
    assert [line["reason"] for line in bookie.logged("stopping")] == ["SIGTERM"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_bookie_that_was_told_to_be_read_only_starts_so(
    make_bookie: MakeBookie, end: signal.Signals
) -> None:
    bookie = make_bookie()
    bookie.start()
    request = pb.SetReadOnlyRequest(read_only=True, reason="decommission")
    assert not bookie.stub.set_read_only(request, timeout=WAIT_S).writable
    bookie.end(end)
    bookie.start()
    info = bookie.stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S)
    assert (info.writable, info.read_only_reason) == (False, "decommission")
    (said,) = bookie.logged("read-only, as before the restart")
    assert said["reason"] == "decommission"


def test_rule_46_a_bookie_serves_on_while_zookeeper_is_away(
    make_bookie: MakeBookie, own_zookeeper: EmbeddedZooKeeper
) -> None:
    bookie = make_bookie(zookeeper=own_zookeeper.connect_string)
    bookie.start()
    ledger_id = create_ledger(own_zookeeper.connect_string)
    stream = bookie.open_stream()
    stream.attach(ledger_id)
    own_zookeeper.pause()
    try:
        assert stream.add(frame_of(ledger_id, 0, [b"a"])) == {}
        assert read_ids(bookie, ledger_id, 9) == [0]
        assert bookie.health(LIVENESS) == "SERVING"
    finally:
        own_zookeeper.resume()
    assert stream.add(frame_of(ledger_id, 1, [b"b"])) == {}


def test_rule_23_a_write_that_fails_ends_the_process_with_a_reason(
    make_bookie: MakeBookie, zookeeper: str
) -> None:
    bookie, process, stream, ledger_id = start_attached(make_bookie(), zookeeper)
    stream.add(frame_of(ledger_id, 0, [b"a"]))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
    stream.send(frame_of(ledger_id, 1, [bytes(100_000)]))
    assert process.wait(PROCESS_S) == 3
    (line,) = bookie.logged("the bookie stops: what is durable is unknown, the next start replays")
    assert "journal" in line["reason"]
    bookie.start()
    assert read_ids(bookie, ledger_id, 9)[:1] == [0]


def test_rule_23_storage_that_fails_during_the_stop_is_said_and_is_no_orderly_end(
    make_bookie: MakeBookie, zookeeper: str
) -> None:
    bookie, process, stream, ledger_id = start_attached(make_bookie(), zookeeper)
    assert stream.add(frame_of(ledger_id, 0, [bytes(200_000)])) == {}
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (65_536, 65_536))
    assert bookie.end() == EXIT_STORAGE_FAILED
    store, journal = bookie.logged("storage failed")
    assert store["reason"].startswith("the store failed")
    assert journal["reason"].startswith("the journal could not be closed")
    (line,) = bookie.logged("the bookie stops: what is durable is unknown, the next start replays")
    assert line["reason"] == store["reason"]
    bookie.start()
    assert read_ids(bookie, ledger_id, 9) == [0]


def test_the_metrics_are_served_and_their_list_is_known(make_bookie: MakeBookie) -> None:
    bookie = make_bookie()
    bookie.start()
    with urllib.request.urlopen(f"http://{bookie.addresses['metrics_address']}/", timeout=WAIT_S) as answer:
        text = answer.read().decode()
    assert "daybook_bookie_server_status 1.0" in text
    assert "daybook_bookie_registered 1.0" in text
    memory = re.search(r"^process_resident_anonymous_bytes (\S+)$", text, re.MULTILINE)
    assert memory is not None
    assert float(memory[1]) < 512 << 20


def test_zookeeper_away_at_the_start_is_said(make_bookie: MakeBookie) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{unused.getsockname()[1]}"
        bookie = make_bookie(formatted=False, zookeeper=nobody, connect_timeout_ms=500)
        assert bookie.spawn().wait(PROCESS_S) == 1
    (line,) = bookie.logged("the bookie cannot start")
    assert nobody in line["reason"]


def test_an_unknown_cluster_is_said(make_bookie: MakeBookie) -> None:
    bookie = make_bookie(formatted=False)
    assert bookie.spawn().wait(PROCESS_S) == 1
    (line,) = bookie.logged("the bookie cannot start")
    assert "there is no cluster 'daybook'" in line["reason"]


@pytest.mark.parametrize("which", ["address", "health_address", "metrics_address"])
def test_a_port_in_use_is_said(make_bookie: MakeBookie, which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        bookie = make_bookie(**{which: address})
        assert bookie.spawn().wait(PROCESS_S) == 1
    (line,) = bookie.logged("the bookie cannot start")
    assert address in line["reason"]
    assert "is in use by another process" in line["reason"]


def test_a_second_process_on_the_same_directories_is_refused(make_bookie: MakeBookie, tmp_path: Path) -> None:
    first = make_bookie()
    first.start()
    second = make_bookie("second", journal_dir=str(tmp_path / "b0" / "journal"))
    assert second.spawn().wait(PROCESS_S) == 1
    (line,) = second.logged("the bookie cannot start")
    assert "another process uses" in line["reason"]
    assert eventually(lambda: first.health(READINESS) == "SERVING")


def test_settings_that_cannot_be_used_are_said_all_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "daybook_bookie", "start", "--bookie-id", "a/b", "--address", "nowhere"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    for text in ("'a/b' cannot name a bookie", "'nowhere' is not an address", "zookeeper", "journal_dir"):
        assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_rule_29_a_lost_disk_and_a_deleted_cookie_end_with_exit_codes_of_their_own(
    make_bookie: MakeBookie, zookeeper: str
) -> None:
    """What watches bookies from outside may authorise a replacement for these two, and for nothing else."""
    bookie = make_bookie()
    bookie.start()
    create_ledger(zookeeper)
    assert bookie.end() == 0

    with_store(zookeeper, lambda store: BookieDirectory(store, LAYOUT).delete_cookie("b0", 0))
    assert bookie.spawn().wait(PROCESS_S) == EXIT_FORGOTTEN
    assert "daybook bookie replace b0" in bookie.tail()

    with_store(zookeeper, lambda store: _authorise(store, "b0"))
    bookie.start()
    assert bookie.end() == 0
    for name in ("journal", "store"):
        shutil.rmtree(bookie.directory / name)
    assert bookie.spawn().wait(PROCESS_S) == EXIT_DISK_LOST
    assert "daybook bookie replace b0" in bookie.tail()

    (bookie.directory / "store" / "stray").write_bytes(b"?")
    assert bookie.spawn().wait(PROCESS_S) == EXIT_NOT_STARTED


async def _authorise(store: MetadataStore, bookie: str) -> None:
    await BookieDirectory(store, LAYOUT).authorise_replacement(bookie, by="test", now_ms=0)
