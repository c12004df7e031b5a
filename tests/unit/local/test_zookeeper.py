"""The ZooKeeper that a local cluster and the tests run: its port and its data outlive its process."""

import os

import pytest

from daybook.local import zookeeper as embedded
from daybook.local.zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from daybook.runtime.ports import HeldPort


@pytest.mark.integration
def test_a_stopped_server_keeps_its_port_and_data_and_a_paused_one_can_be_stopped(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    port, pid = own_zookeeper.port, own_zookeeper.pid
    assert pid is not None
    own_zookeeper.pause()
    own_zookeeper.stop()
    assert own_zookeeper.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(EmbeddedZooKeeperError, match="does not run"):
        own_zookeeper.pause()
    own_zookeeper.stop()
    own_zookeeper.start()
    assert own_zookeeper.port == port
    assert (own_zookeeper.directory / "data" / "version-2").is_dir()


@pytest.mark.integration
def test_no_process_gets_the_port_of_a_stopped_server(
    own_zookeeper: EmbeddedZooKeeper,
) -> None:
    own_zookeeper.kill()
    with HeldPort(wanted=own_zookeeper.port) as other:
        assert other.port != own_zookeeper.port
    own_zookeeper.start()


@pytest.mark.parametrize("missing", ["pyspark", "java"])
def test_the_error_names_what_the_embedded_server_lacks(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    find = embedded.find_jars if missing == "pyspark" else embedded.find_java
    with pytest.raises(EmbeddedZooKeeperError, match="uv sync --inexact --extra local"):
        find()
