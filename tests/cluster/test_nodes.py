"""What can be tested of a cluster of nodes without bringing one up, which `make e2e` does."""

import hashlib
import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.cluster import cgroups, nodes
from tests.cluster.__main__ import main
from tests.cluster.node_files import PAUSE_IMAGE, Node, write_files
from tests.cluster.nodes import NodeCluster, NodesError, check_machine
from tests.cluster.sandbox import Sandbox, SandboxError
from tests.cluster.static_image import write_image
from tests.unit.bookie.server_kit import eventually

NODE = Node("node-a", "zone-1", "", 2, Path("/nowhere"))


def why_no_sandbox() -> str:
    """What this user on this machine lacks for a sandbox; empty if nothing."""
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    missing = [tool for tool in ("unshare", "nsenter", "ip", "mount") if shutil.which(tool) is None]
    if missing:
        return f"there is no {' and no '.join(missing)} here"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"only root may make such namespaces ({done.stderr.strip()})" if done.returncode else ""


needs_namespaces = pytest.mark.skipif(bool(reason := why_no_sandbox()), reason=reason)


def test_everything_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(nodes, "CNI_PLUGINS", tmp_path)
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(NodesError) as missing:
        check_machine()
    for words in (
        "- root:",
        "- cgroup v1:",
        "apt-get install conntrack containerd",
        "containernetworking-plugins",
    ):
        assert words in str(missing.value)


@pytest.mark.parametrize("text", ["node-a", "node-a:", ":zone-1", ""])
def test_a_node_without_a_zone_is_refused(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "check_machine", lambda: None)
    with pytest.raises(NodesError, match="NODE:ZONE"):
        NodeCluster(tmp_path / "cluster").up([text])


@pytest.mark.parametrize("words", [["run", "true"], ["volumes", "3"]])
def test_without_a_cluster_the_message_says_so(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_NODES_DIR", str(tmp_path / "none"))
    with pytest.raises((NodesError, SandboxError), match="bring it up first"):
        main(words)


@pytest.mark.parametrize("words", [[], ["up"], ["volumes", "many"], ["with", "a:b"], ["stop"]])
def test_a_command_that_is_none_prints_the_list(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "stop|start|cut|join NODE" in capsys.readouterr().err


def test_nodes_share_no_address_and_no_cgroup(tmp_path: Path) -> None:
    other = Node("node-b", "zone-2", "rack-1", 3, tmp_path)
    for name in ("address", "pod_range", "link", "port", "cgroup", "socket"):
        assert getattr(NODE, name) != getattr(other, name)
    write_files(other, Path("/proxy.kubeconfig"))
    kubelet = json.loads((tmp_path / "kubelet.yaml").read_text(encoding="utf-8"))
    assert kubelet["cgroupRoot"] == "/daybook-node-b"
    assert str(other.socket) in (tmp_path / "containerd.toml").read_text(encoding="utf-8")
    assert other.pod_range in (tmp_path / "cni" / "10-bridge.conflist").read_text(encoding="utf-8")


def test_the_pause_image_is_one_that_containerd_takes(tmp_path: Path) -> None:
    (tmp_path / "pause").write_bytes(b"a program")
    write_image(tmp_path / "pause", "x86_64", tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as archive:
        files = {name: archive.extractfile(name) for name in archive.getnames()}
        content = {name: file.read() for name, file in files.items() if file is not None}
    (manifest,) = json.loads(content["manifest.json"])
    config = json.loads(content[manifest["Config"]])
    layer = content[manifest["Layers"][0]]
    assert manifest["RepoTags"] == [PAUSE_IMAGE]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        assert archive.getmember("pause").mode == 0o755


@needs_namespaces
def test_a_sandbox_has_processes_and_a_network_of_its_own(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "sandbox")
    sandbox.create()
    try:
        assert "br0" not in sandbox.run("ip", "link")
        sandbox.run("ip", "link", "add", "br0", "type", "bridge")
        assert "br0" in sandbox.run("ip", "link")
        with pytest.raises(SandboxError, match="a cluster runs already"):
            sandbox.create()
        with pytest.raises(SandboxError, match="Cannot find device"):
            sandbox.run("ip", "link", "set", "nothing", "up")
        assert Sandbox(sandbox.directory).pid == sandbox.pid, "another process finds it"
    finally:
        sandbox.destroy()
    assert sandbox.pid is None


def command_of(pid: str) -> bytes:
    """The command line of a process; nothing if it has ended, be it that nobody has asked for its exit code yet."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@needs_namespaces
def test_a_sandbox_ends_with_all_that_was_started_in_it(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path / "sandbox")
    sandbox.create()
    try:
        for name in ("one", "two"):
            sandbox.start(name, ["sleep", "1000"])
        pids = {
            name: (sandbox.directory / "pid" / name).read_text(encoding="utf-8") for name in ("one", "two")
        }
        sandbox.kill("one")
        assert command_of(pids["one"]) == b""
        assert eventually(lambda: command_of(pids["two"]) == b"sleep\x001000\x00")
    finally:
        sandbox.destroy()
    assert command_of(pids["two"]) == b""


@needs_namespaces
def test_a_process_id_that_was_given_out_again_is_no_sandbox(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    sandbox.create()
    try:
        known = json.loads((tmp_path / "init.json").read_text(encoding="utf-8"))
        (tmp_path / "init.json").write_text(json.dumps({**known, "startedAt": "1"}), encoding="utf-8")
        assert sandbox.pid is None
        (tmp_path / "init.json").write_text(json.dumps(known), encoding="utf-8")
    finally:
        sandbox.destroy()
