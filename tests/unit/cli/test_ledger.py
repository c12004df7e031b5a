"""`daybook ledger …` on a real cluster: its output and its errors."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from daybook.local.cluster import CLUSTER_NAME, LocalCluster
from daybook.metadata.bookies import BookieDirectory
from daybook.metadata.layout import Layout
from daybook.metadata.ledgers import LedgerManager
from daybook.metadata.store.zookeeper import ZooKeeperStore
from tests.fixtures.cluster import make_cluster
from tests.unit.cli.kit import Process, run, write
from tests.unit.runtime.certificates import new_authority

pytestmark = pytest.mark.integration


def the_json(*arguments: object) -> Any:
    """What the command prints with --json."""
    result = run(*arguments, "--json")
    assert result.exit_code in (0, 1), result.stderr
    return json.loads(result.stdout)


def one_line_error(*arguments: object, env: dict[str, str] | None = None) -> str:
    """The one line of error of a failing command."""
    result = run(*arguments, env=env)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def test_lines_are_written_read_shown_verified_and_deleted(directory: Path) -> None:
    ledger = write(directory, b"first\n\nthird, without an end", "--metadata", "source=test")
    here = ("--dir", directory)
    assert run("ledger", "read", ledger, *here).stdout == "first\n\nthird, without an end\n"
    assert run("ledger", "read", ledger, "--first", 1, "--last", 1, *here).stdout == "\n"
    lines = run("ledger", "read", ledger, "--json", *here).stdout.splitlines()
    assert json.loads(lines[0]) == {"entry_id": 0, "data": "first"}
    shown = the_json("ledger", "show", ledger, *here)
    assert (shown["state"], shown["lastEntryId"], shown["length"]) == ("CLOSED", 2, 26)
    assert shown["customMetadata"] == {"source": "dGVzdA=="}
    (listed,) = [each for each in the_json("ledger", "list", *here) if each["ledgerId"] == ledger]
    assert listed == shown
    assert shown["password"] == "(hidden)", "with the hash, bookies let anybody read and fence"
    assert "3 entries, 26 bytes" in run("ledger", "show", ledger, *here).stdout
    assert the_json("ledger", "verify", ledger, *here)["is_whole"], "all copies are there when it returns"
    assert run("ledger", "delete", ledger, *here).exit_code == 0
    assert "does not exist" in one_line_error("ledger", "show", ledger, *here)


def test_a_deletion_without_recovery_asks_first(directory: Path) -> None:
    ledger = write(directory, b"x\n", "--keep-open")
    words = ("ledger", "delete", ledger, "--without-recovery", "--dir", directory)
    result = run(*words, stdin="n\n")
    assert result.exit_code == 1
    assert f"ledger {ledger} is OPEN, has at least 0 entries, on bookie-" in result.stdout
    assert run("ledger", "show", ledger, "--dir", directory).exit_code == 0
    assert run(*words, "--yes").exit_code == 0
    assert "does not exist" in one_line_error("ledger", "show", ledger, "--dir", directory)


def test_a_recovery_that_accepts_loss_asks_first_and_loses_nothing_that_can_be_recovered(
    directory: Path,
) -> None:
    ledger = write(directory, b"x\ny\n", "--keep-open")
    words = ("ledger", "recover", ledger, "--accept-loss", "--dir", directory)
    asked = run(*words, stdin="n\n")
    assert asked.exit_code == 1
    assert f"ledger {ledger} is OPEN, has at least 0 entries, on bookie-" in asked.stdout
    assert the_json("ledger", "show", ledger, "--dir", directory)["state"] == "OPEN"
    closed = run(*words, "--yes")
    assert closed.exit_code == 0
    assert closed.stdout == f"ledger {ledger} is closed at entry 1\n"


def test_a_ledger_of_a_topic_is_deleted_by_force_alone(directory: Path) -> None:
    topic = "persistent://public/default/orders"
    here = ("--dir", directory)
    for more in ((), ("--without-recovery", "--yes")):
        ledger = write(directory, b"x\n", "--metadata", f"daybook/topic={topic}", "--keep-open")
        refused = one_line_error("ledger", "delete", ledger, *more, *here)
        assert f"ledger {ledger} belongs to topic {topic}" in refused
        assert the_json("ledger", "show", ledger, *here)["state"] == "OPEN", "its writer continues"
        assert f"belongs to topic {topic}\n" in run("ledger", "show", ledger, *here).stdout
        listed = run("ledger", "list", *here, env={"COLUMNS": "200"}).stdout
        (line,) = [each for each in listed.splitlines() if topic in each]
        assert str(ledger) in line
        assert run("ledger", "delete", ledger, "--force", *more, *here).exit_code == 0
        assert "does not exist" in one_line_error("ledger", "show", ledger, *here)


def test_tables_fit_the_terminal(directory: Path) -> None:
    write(directory, b"x\n")
    for width in (80, 120):
        for command in (("ledger", "list"), ("bookie", "list"), ("bookie", "info", "bookie-0"), ("--help",)):
            where = () if command == ("--help",) else ("--dir", directory)
            result = run(*command, *where, env={"COLUMNS": str(width)}).stdout
            assert result
            assert max(map(len, result.splitlines())) <= width, command


def test_a_ledger_is_created_attached_once_recovered_and_closed(directory: Path) -> None:
    here = ("--dir", directory)
    created = run("ledger", "create", *here, "--ack-quorum", 1, "--password", "secret")
    assert "warning" in created.stderr, "Qa below a majority"
    ledger = int(created.stdout)
    assert "password of ledger" in one_line_error("ledger", "delete", ledger, *here)
    with Process("ledger", "write", ledger, *here, "--password", "secret", "--keep-open") as process:
        process.stdin.write(b"a\nb\n")
        assert process.end() == (0, b"")
        assert "2 entries, 2 bytes acknowledged" in process.errors
    attached = one_line_error("ledger", "write", ledger, *here, "--password", "secret")
    assert "attached for writing before" in attached
    wrong = one_line_error("ledger", "recover", ledger, *here, "--password", "guess")
    assert "password of ledger" in wrong
    recovered = run("ledger", "recover", ledger, *here, env={"DAYBOOK_PASSWORD": "secret"})
    assert recovered.stdout == f"ledger {ledger} is closed at entry 1\n"


def test_a_slow_pipe_is_followed_line_by_line(directory: Path) -> None:
    """Each line is read back before the next one is written: nothing waits for a full batch or for the end."""
    with Process("ledger", "write", "--dir", directory) as writer:
        ledger = int(writer.stdout.readline())
        with Process("ledger", "read", ledger, "--follow", "--dir", directory) as reader:
            for number in range(3):
                line = f"line {number}\n".encode()
                writer.stdin.write(line)
                writer.stdin.flush()
                assert reader.stdout.readline() == line
            assert writer.end() == (0, b"")
            assert "3 entries, 18 bytes acknowledged" in writer.errors
            assert reader.end() == (0, b""), reader.errors


def test_a_reader_that_stops_early_ends_the_command_quietly(directory: Path) -> None:
    ledger = write(directory, b"".join(b"%d\n" % number for number in range(100_000)))
    with Process("ledger", "read", ledger, "--dir", directory) as process:
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        code, _ = process.end()
        assert (code, process.errors) == (141, "")


def test_an_interrupted_write_reports_what_is_acknowledged_and_how_to_close(directory: Path) -> None:
    with Process("ledger", "write", "--dir", directory) as writer:
        ledger = int(writer.stdout.readline())
        writer.stdin.write(b"kept\n")
        writer.stdin.flush()
        with Process("ledger", "read", ledger, "--follow", "--dir", directory) as reader:
            assert reader.stdout.readline() == b"kept\n"
            writer.send(signal.SIGINT)
            code, _ = writer.end()
            assert code == 130
            assert f"`daybook ledger recover {ledger}` closes it" in writer.errors
            assert "1 entries, 4 bytes acknowledged" in writer.errors
            assert "Traceback" not in writer.errors
            reader.send(signal.SIGINT)
            assert reader.end() == (130, b"")
            assert reader.errors == "interrupted\n"
    assert run("ledger", "recover", ledger, "--dir", directory).stdout.endswith("at entry 0\n")


def test_a_line_that_is_too_long_is_refused_by_number(directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"short\n" + b"x" * (9 << 20))
    with Process("ledger", "write", "--file", file, "--dir", directory) as process:
        code, _ = process.end()
        assert code == 1
        assert "error: line 2 is longer than an entry may be" in process.errors
        assert "1 entries, 5 bytes acknowledged" in process.errors


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("ledger", "show", 2**40), "does not exist: it was never created, or it was deleted"),
        (("ledger", "read", 2**40, "--follow"), "does not exist"),
        (("ledger", "create", "--write-quorum", 2, "--ack-quorum", 3), "write quorum ≥ ack quorum"),
        (("ledger", "create", "--ensemble-size", 5), "start more bookies"),
        (
            ("bookie", "info", "nobody"),
            "is not registered (registered are: bookie-0, bookie-1, bookie-2, bookie-3)",
        ),
        (("bookie", "start", "nobody"), "there is no bookie 'nobody'"),
        (("bookie", "start", "bookie-0"), "runs already, as process"),
        (("bookie", "replace", "bookie-0", "--yes"), "stop it first"),
        (
            ("bookie", "replace", "nobody", "--yes"),
            "bookies with a cookie: bookie-0, bookie-1, bookie-2, bookie-3) and no ledger names it; check the id",
        ),
    ],
)
def test_an_expected_error_is_one_line(directory: Path, arguments: tuple[object, ...], expected: str) -> None:
    assert expected in one_line_error(*arguments, "--dir", directory)


def test_a_bookie_that_only_a_ledger_names_may_be_replaced_and_any_other_by_force(
    cluster: LocalCluster,
) -> None:
    """For a bookie whose cookie was deleted; a mistyped id gets no authorisation."""
    write(cluster.directory, b"x\n", "--ensemble-size", 4, "--write-quorum", 4)
    left: list[bool] = []

    async def work() -> None:
        store = await ZooKeeperStore.open(cluster.zookeeper.connect_string)
        directory = BookieDirectory(store, layout)
        cookie = await directory.cookie("bookie-3")
        assert cookie is not None
        await directory.delete_cookie("bookie-3", cookie.version)
        cluster.stop_bookies("bookie-3")
        async for registered in directory.watch_bookies():
            if "bookie-3" not in registered:
                break
        try:
            for words in (("bookie-3",), ("nobody", "--force")):
                result = await asyncio.to_thread(
                    run, "bookie", "replace", *words, "--yes", "--dir", cluster.directory
                )
                assert result.exit_code == 0, result.stderr
                left.append(await directory.replacement(words[0]) is not None)
                await store.delete(layout.replacement(words[0]))
        finally:
            await store.multi(directory.stamping(cookie.value, over=None, leave=None))
            await store.close()
            await asyncio.to_thread(cluster.start_bookie, "bookie-3")

    layout = Layout(CLUSTER_NAME)
    asyncio.run(work())
    assert left == [True, True]


def test_a_bookie_that_detected_a_roll_back_accepts_it_by_name(tmp_path: Path) -> None:
    with make_cluster(
        tmp_path, bookies=1
    ) as cluster:  # a separate cluster: every bookie that holds the ledger detects it
        _accept_a_roll_back(cluster)


def _accept_a_roll_back(cluster: LocalCluster) -> None:
    here = ("--dir", cluster.directory)
    write(cluster.directory, b"x\n", "--ensemble-size", 1, "--write-quorum", 1, "--ack-quorum", 1)
    highest = the_json("bookie", "info", "bookie-0", *here)["highest_ledger"]
    result = run("bookie", "accept-rollback", "bookie-0", *here)
    assert (result.exit_code, "nothing to accept" in result.stdout) == (0, True)

    async def counter(below: int | None = None) -> int:
        store = await ZooKeeperStore.open(cluster.zookeeper.connect_string)
        try:
            layout = Layout(CLUSTER_NAME)
            if below is not None:
                now = await store.get(layout.idgen)
                await store.put(layout.idgen, json.dumps({"next": below}).encode(), now.version)
            return await LedgerManager(store, layout).next_id()
        finally:
            await store.close()

    asyncio.run(counter(below=highest))
    cluster.stop_bookies("bookie-0")
    cluster.start_bookie("bookie-0")
    refused = run("bookie", "accept-rollback", "bookie-0", *here, stdin="n\n")
    assert (refused.exit_code, "went back in time" in refused.stderr) == (1, True)
    assert asyncio.run(counter()) == highest
    result = run("bookie", "accept-rollback", "bookie-0", "--yes", *here)
    assert (result.exit_code, "accepts ZooKeeper again" in result.stdout) == (0, True), result.stderr
    assert asyncio.run(counter()) == highest + 1
    assert the_json("bookie", "info", "bookie-0", *here)["collection_refused"] == ""


def test_the_error_about_a_missing_cluster_is_one_line(tmp_path: Path) -> None:
    nowhere = one_line_error("ledger", "list", "--dir", tmp_path)
    assert nowhere == f"no cluster runs in {tmp_path}: start one with `daybook up --dir {tmp_path}`"
    file = tmp_path / "cluster.json"
    assert "no cluster runs in" in one_line_error("ledger", "list", "--dir", file)
    file.write_text("{}")
    assert "is not a cluster file" in one_line_error("ledger", "list", "--dir", tmp_path)
    env = {name: "" for name in ("DAYBOOK_DIR", "DAYBOOK_ZOOKEEPER") if name in os.environ}
    assert "--zookeeper HOST:PORT" in one_line_error("ledger", "list", env=env)


def test_a_command_waits_for_an_absent_zookeeper_within_bounds() -> None:
    env = {"DAYBOOK_ZOOKEEPER_CONNECT_TIMEOUT_MS": "300", "DAYBOOK_LOG_LEVEL": "ERROR"}
    result = one_line_error("ledger", "list", "--zookeeper", "127.0.0.1:1", env=env)
    assert "no ZooKeeper answers at 127.0.0.1:1 within 0.3 s" in result


def test_settings_of_zookeeper_come_from_the_environment() -> None:
    env = {"DAYBOOK_ZOOKEEPER_TLS_CERTIFICATE": "/there.pem"}
    result = one_line_error("ledger", "list", "--zookeeper", "127.0.0.1:1", env=env)
    assert "tls_certificate and tls_key go together" in result


def test_metadata_without_a_value_is_wrong_usage(directory: Path) -> None:
    result = run("ledger", "create", "--metadata", "colour", "--dir", directory)
    assert result.exit_code == 2
    assert "'colour' is not KEY=VALUE" in result.stderr


def test_tls_against_bookies_without_it_is_explained(directory: Path, tmp_path: Path) -> None:
    ca = new_authority().issue(tmp_path, "client").ca
    result = run("--tls-ca", ca, "bookie", "info", "bookie-0", "--dir", directory)
    assert result.exit_code == 1
    assert "TLS failed: the bookie does not use TLS" in result.stderr


def test_bookies_are_listed_described_and_scrubbed(directory: Path) -> None:
    here = ("--dir", directory)
    bookies = the_json("bookie", "list", *here)
    assert [(bookie["bookie"], bookie["rack"]) for bookie in bookies] == [
        ("bookie-0", "a"),
        ("bookie-1", "b"),
        ("bookie-2", "c"),
        ("bookie-3", "a"),
    ]
    assert the_json("bookie", "info", "bookie-1", *here)["bookie_id"] == "bookie-1"
    assert "entries of" in run("bookie", "scrub", "bookie-2", *here).stdout
    assert run("bookie", "replace", "bookie-1", *here, stdin="n\n").exit_code == 1
