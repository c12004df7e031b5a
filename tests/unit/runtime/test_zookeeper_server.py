"""The entry point of the ZooKeeper image: its configuration from variables, and a real server."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from daybook.local.zookeeper import find_jars, find_java
from daybook.metadata.store.acl import acl_of_nodes
from daybook.metadata.store.store import StoreError
from daybook.metadata.store.zookeeper import ZooKeeperOptions, ZooKeeperStore
from daybook.runtime import zookeeper_server
from daybook.runtime.ports import HeldPort
from daybook.runtime.zookeeper_ensemble import ServerSettings, WrongSettingsError
from daybook.runtime.zookeeper_server import (
    health,
    metrics,
    prepare,
    write_stores,
    zoo_cfg,
)
from tests.unit.runtime.certificates import Authority, new_authority

THREE = {"ZOOKEEPER_SERVERS": "zk-0.zk, zk-1.zk,zk-2.zk", "HOSTNAME": "zk-2"}


def lines_of(settings: ServerSettings) -> dict[str, str]:
    return dict(line.split("=", 1) for line in zoo_cfg(settings).splitlines())


def test_a_server_alone_needs_no_variables() -> None:
    lines = lines_of(ServerSettings.from_variables({"HOSTNAME": "anything"}))
    assert lines["tickTime"] == "500"
    assert not any(name.startswith("server.") for name in lines)


def test_a_server_of_three_finds_itself_by_its_ordinal(tmp_path: Path) -> None:
    places = {"ZOOKEEPER_DATA_DIR": f"{tmp_path}/data", "ZOOKEEPER_RUN_DIR": f"{tmp_path}/run"}
    settings = ServerSettings.from_variables({**THREE, **places})
    prepare(settings)
    assert (tmp_path / "data" / "myid").read_text() == "3\n"
    lines = lines_of(settings)
    assert lines["server.3"] == "zk-2.zk:2888:3888"
    assert lines["server.1"] == "zk-0.zk:2888:3888"
    assert lines["quorumListenOnAllIPs"] == "true"
    assert "ssl" not in zoo_cfg(settings)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({**THREE, "HOSTNAME": "zk-3"}, "ordinal below 3"),
        ({**THREE, "HOSTNAME": "zk"}, "ordinal below 3"),
        ({"ZOOKEEPER_SERVERS": "a b,c"}, "not a host name"),
        ({"ZOOKEEPER_TICK_MS": "fast"}, "ZOOKEEPER_TICK_MS='fast': give a number from 100 to 60000"),
        ({"ZOOKEEPER_CLIENT_PORT": "70000"}, "from 1 to 65535"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(variables: dict[str, str], words: str) -> None:
    with pytest.raises(WrongSettingsError, match=words):
        ServerSettings.from_variables(variables)


def test_a_key_that_zookeeper_cannot_read_is_refused(tmp_path: Path) -> None:
    settings = ServerSettings(tls_dir=tmp_path / "tls", run_dir=tmp_path)
    with pytest.raises(WrongSettingsError, match=r"tls\.key: No such file"):
        write_stores(settings)
    (tmp_path / "tls").mkdir()
    for name in ("tls.key", "tls.crt", "ca.crt"):
        (tmp_path / "tls" / name).write_text("-----BEGIN EC PRIVATE KEY-----")
    with pytest.raises(WrongSettingsError, match="PKCS8"):
        write_stores(settings)


def test_a_lost_quorum_restarts_nobody() -> None:
    """Liveness checks whether the server answers, readiness whether it serves."""
    answers = {"ruok": "imok", "srvr": "This ZooKeeper instance is not currently serving requests\n"}
    assert health("/livez", answers.__getitem__)[0] == 200
    assert health("/readyz", answers.__getitem__)[0] == 503
    answers["srvr"] = "Zookeeper version: 3.9.5\nMode: follower\nNode count: 5\n"
    assert health("/readyz", answers.__getitem__) == (200, "follower\n")


def test_a_server_that_is_gone_is_not_alive() -> None:
    def refuse(_word: str) -> str:
        raise ConnectionRefusedError

    assert health("/livez", refuse)[0] == 503
    assert health("/readyz", refuse)[0] == 503
    assert health("/metrics", refuse)[0] == 503
    assert health("/other", refuse)[0] == 404


def test_figures_become_metrics_and_words_do_not() -> None:
    answer = 'zk_version\t3.9.5-abc\nzk_server_state\tleader\nzk_avg_latency\t0.25\nzk_p99_x{key="a"}\t1\n'
    assert metrics(answer).splitlines() == [
        "zk_avg_latency 0.25",
        'zk_p99_x{key="a"} 1',
        'zk_server_state{state="leader"} 1',
    ]


# -- a real one ----------------------------------------------------------------------------------------------------


class Server:
    """The entry point as a process."""

    def __init__(self, folder: Path, ports: Sequence[int], variables: Mapping[str, str]) -> None:
        self.port, self.health_port, self.tls_port = ports
        given = {
            "ZOOKEEPER_DATA_DIR": str(folder / "data"),
            "ZOOKEEPER_RUN_DIR": str(folder / "run"),
            "ZOOKEEPER_CLIENT_PORT": str(self.port),
            "ZOOKEEPER_HEALTH_PORT": str(self.health_port),
            "ZOOKEEPER_TLS_PORT": str(self.tls_port),
            "ZOOKEEPER_JAVA": find_java(),
            "ZOOKEEPER_CLASS_PATH": find_jars(),
            **variables,
        }
        self.process = subprocess.Popen(
            [sys.executable, zookeeper_server.__file__], env={**os.environ, **given}, stderr=subprocess.STDOUT
        )

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)


@contextmanager
def running(folder: Path, **variables: str) -> Iterator[Server]:
    """A server that serves."""
    held = [HeldPort() for _ in range(3)]
    server = Server(folder, [each.port for each in held], variables)
    pause = threading.Event()
    try:
        for _ in range(600):
            if server.get("/readyz")[0] == 200:
                break
            assert server.process.poll() is None
            pause.wait(0.1)
        else:
            raise AssertionError(server.get("/readyz"))
        yield server
    finally:
        if server.process.poll() is None:
            server.process.terminate()  # SIGKILL would leave the server process behind
        server.process.wait(60)
        for each in held:
            each.close()


@pytest.mark.integration
def test_it_serves_tells_its_metrics_and_ends_in_order(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        assert server.get("/livez") == (200, "imok\n")
        assert server.get("/readyz") == (200, "standalone\n")
        client = KazooClient(f"127.0.0.1:{server.port}")
        client.start()
        client.create("/kept", b"value")
        client.stop()
        client.close()
        _, text = server.get("/metrics")
        figures = dict(line.rsplit(" ", 1) for line in text.splitlines())
        assert int(figures["zk_znode_count"]) >= 5
        assert figures['zk_server_state{state="standalone"}'] == "1"
        assert "zk_outstanding_requests" in figures
        assert "zk_avg_latency" in figures
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    with running(tmp_path) as server:
        client = KazooClient(f"127.0.0.1:{server.port}")
        client.start()
        assert client.get("/kept")[0] == b"value"
        client.stop()
        client.close()


@pytest.mark.integration
def test_a_server_that_dies_takes_the_container_with_it(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        (child,) = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        assert server.process.wait(60) != 0


@pytest.mark.integration
def test_clients_with_a_certificate_of_the_ca_are_served_by_tls(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    tls.mkdir()
    authority = new_authority()
    files = authority.issue(tls, "server")
    for name, path in (("tls.crt", files.certificate), ("tls.key", files.key), ("ca.crt", files.ca)):
        assert path is not None
        path.rename(tls / name)
    with running(tmp_path, ZOOKEEPER_TLS_DIR=str(tls)) as server:
        mine = authority.issue(tmp_path, "client")
        client = KazooClient(
            f"127.0.0.1:{server.tls_port}",
            use_ssl=True,
            ca=str(mine.ca),
            certfile=str(mine.certificate),
            keyfile=str(mine.key),
        )
        client.start()
        assert client.get_children("/") == ["zookeeper"]
        client.stop()
        client.close()
        asyncio.run(_owned_by_subjects(server, authority, tmp_path))


async def _owned_by_subjects(server: Server, authority: Authority, directory: Path) -> None:
    """The other owners can change a node that one of them creates; other admitted clients cannot."""
    owners = ("CN=bookie", "CN=operator")

    async def opened(name: str) -> ZooKeeperStore:
        mine = authority.issue(directory, name)
        options = ZooKeeperOptions(
            tls=True,
            ca_file=str(mine.ca),
            cert_file=str(mine.certificate),
            key_file=str(mine.key),
            acl=acl_of_nodes(has_user=False, shows_certificate=True, x509_owners=owners),
        )
        return await ZooKeeperStore.open(f"127.0.0.1:{server.tls_port}", options)

    async with AsyncExitStack() as stack:
        bookie, operator, other = [await opened(name) for name in ("bookie", "operator", "other")]
        for store in (bookie, operator, other):
            stack.push_async_callback(store.close)
        await bookie.create("/owned", b"1")
        with pytest.raises(StoreError, match="NoAuthError"):
            await other.put("/owned", b"2", 0)
        with pytest.raises(StoreError, match="NoAuthError"):
            await other.get("/owned")
        version = await operator.put("/owned", b"3", 0)
        await operator.create("/owned/child", b"")
        await bookie.delete("/owned/child", 0)
        assert (await bookie.get("/owned")).value == b"3"
        assert version == 1
