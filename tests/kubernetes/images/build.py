"""Builds the Dockerfile's targets on this machine alone: a base of Debian's packages, wheels from outside, buildah.

No image registry is needed, and nothing is built twice: results are kept outside the tree under a key of all that went
into them. Root only, since a base image is made of files that belong to root.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.fixtures.package_index import find_uv, locked, user_cache
from tests.paths import ROOT

TARGETS: Final = ("bookie", "broker", "operator", "spark", "zookeeper")
"""What the chart and the operator start."""
SOURCES: Final = (
    "Dockerfile",
    "images",
    "uv.lock",
    "pyproject.toml",
    "daybook",
    "bookie-image",
    "broker-image",
    "operator",
    "spark-jobs",
)
NOT_IN_KEY: Final = ("README.md", "LICENSE")
"""What a wheel has too, and what changes nothing that runs."""
BASE_NAME: Final = "localhost/daybook-base:bookworm"
BASE_PACKAGES: Final = "python3,python3-venv,ca-certificates"
SUITE: Final = "bookworm"
TOOLS: Final = ("buildah", "debootstrap")
"""Commands, each of a package of its name."""


class CannotBuildError(Exception):
    """The images cannot be built here; the message says what is missing."""


def cache() -> Path:
    """Where bases, wheels and images are kept."""
    return user_cache() / "images"


def image_name(target: str, tag: str) -> str:
    """As manifests name it; containerd adds the default registry by itself."""
    return f"daybook-{target}:{tag}"


def check_tools() -> None:
    """Raise CannotBuildError unless everything that a build needs is here."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        msg = f"images are built with {' and '.join(missing)}: apt-get install {' '.join(missing)}"
        raise CannotBuildError(msg)
    if find_uv() is None:
        raise CannotBuildError("images are built with uv, which `make uv` puts where this finds it")
    if os.geteuid() != 0:
        msg = "a base image is made of files that belong to root: run this as root"
        raise CannotBuildError(msg)


def buildah(*arguments: object) -> str:
    """Run buildah on storage of our own; its standard output. Raises CannotBuildError with what it said.

    Its network configuration is ours as well, although no build has a network: it makes /etc/cni otherwise.
    """
    storage = cache() / "storage"
    storage.mkdir(parents=True, exist_ok=True)
    configuration = storage / "containers.conf"
    configuration.write_text(f'[network]\nnetwork_config_dir = "{storage / "networks"}"\n', encoding="utf-8")
    places = ("--root", str(storage / "root"), "--runroot", str(storage / "run"))
    return run("buildah", *places, *arguments, env={**os.environ, "CONTAINERS_CONF": str(configuration)})


def run(*command: object, env: Mapping[str, str] | None = None) -> str:
    """Run a command to its end; its standard output. Raises CannotBuildError with the end of what it said."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    if done.returncode:
        msg = f"`{' '.join(words)}` failed:\n{(done.stdout + done.stderr)[-4000:]}"
        raise CannotBuildError(msg)
    return done.stdout


def make_base() -> str:
    """The name of an image with Debian's Python and nothing else; made once."""
    archive = cache() / f"base-{SUITE}.tar"
    if not archive.exists():
        say(f"making a base of Debian {SUITE} (a minute, once)")
        tree = cache() / "base"
        shutil.rmtree(tree, ignore_errors=True)
        tree.mkdir(parents=True)
        run("debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", SUITE, tree)
        for left in ("var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/locale"):
            shutil.rmtree(tree / left, ignore_errors=True)
        partial = archive.with_suffix(".partial")
        with tarfile.open(partial, "w") as tar:
            tar.add(tree, arcname=".", filter=without_devices)
        shutil.rmtree(tree)
        partial.rename(archive)
    if BASE_NAME not in buildah("images", "--format", "{{.Name}}:{{.Tag}}"):
        context = cache() / "base-context"
        context.mkdir(exist_ok=True)
        (context / "Dockerfile").write_text(f"FROM scratch\nADD {archive.name} /\n")
        (context / archive.name).unlink(missing_ok=True)
        os.link(archive, context / archive.name)
        buildah("bud", "--isolation", "chroot", "--tag", BASE_NAME, context)
        shutil.rmtree(context)
    return BASE_NAME


def without_devices(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out device files: a container gets its own."""
    return None if entry.isdev() else entry


def snapshot(folder: Path) -> Path:
    """A copy of everything that images are made of, so that a tree which is edited meanwhile does not get in half."""
    skip = shutil.ignore_patterns("__pycache__", ".*", "build", "dist")
    for name in (*SOURCES, *NOT_IN_KEY):
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=skip)
        else:
            shutil.copy2(path, folder / name)
    return folder


def sources(tree: Path) -> Iterator[Path]:
    """All files that go into the images."""
    for name in SOURCES:
        path = tree / name
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (file for file in files if file.is_file() and "__pycache__" not in file.parts)


def source_key(tree: Path) -> str:
    """A key of everything that goes into the images."""
    digest = hashlib.sha256()
    for path in sources(tree):
        digest.update(f"{path.relative_to(tree)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def make_wheelhouse(tree: Path, key: str) -> Path:
    """Wheels for the images; made anew when a source changed."""
    context = cache() / "context"
    stamp = context / "key"
    if not stamp.exists() or stamp.read_text() != key:
        say("making wheels of uv.lock")
        run(tree / "images" / "wheelhouse.sh", context / "wheelhouse", env=with_uv())
        stamp.write_text(key)
    return context


def with_uv() -> dict[str, str]:
    """An environment whose PATH has the uv that the Makefile uses."""
    uv = find_uv()
    assert uv is not None, "check_tools() comes first"
    return {**os.environ, "PATH": f"{Path(uv).parent}{os.pathsep}{os.environ['PATH']}"}


def build(
    tag: str = "dev", targets: Sequence[str] = TARGETS, *, tree: Path = ROOT, stale: bool = False
) -> dict[str, Path]:
    """An archive for each target of `tree`, to be imported by containerd. Raises CannotBuildError.

    `stale`: what was built last is good enough, whatever changed since.
    """
    check_tools()
    cache().mkdir(parents=True, exist_ok=True)
    if stale:
        built = {target: sorted(cache().glob(f"daybook-{target}-{tag}-*.tar")) for target in targets}
        if all(built.values()):
            return {target: paths[-1] for target, paths in built.items()}
    key = source_key(tree)
    archives = {target: cache() / f"daybook-{target}-{tag}-{key}.tar" for target in targets}
    with locked(cache() / ".lock", "Another process builds images; waiting for it.", say):
        if not all(path.exists() for path in archives.values()):
            build_archives(archives, tag, tree, key)
    return archives


def build_archives(archives: Mapping[str, Path], tag: str, tree: Path, key: str) -> None:
    """Make the archive of each target. The base, the wheels and the storage are shared, so the caller holds the lock."""
    base = make_base()
    context = make_wheelhouse(tree, key)
    for target, archive in archives.items():
        say(f"building {image_name(target, tag)}")
        name = f"localhost/{image_name(target, tag)}"
        given = {"BASE": base, "WHEELS": "given", "WHEELHOUSE": "wheelhouse"}
        flags = [word for variable, value in given.items() for word in ("--build-arg", f"{variable}={value}")]
        dockerfile = ("--file", tree / "Dockerfile", "--target", target)
        buildah("bud", "--isolation", "chroot", "--layers", *flags, *dockerfile, "--tag", name, context)
        for old in cache().glob(f"daybook-{target}-{tag}-*.tar"):
            old.unlink()
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        buildah("push", name, f"docker-archive:{partial}:{image_name(target, tag)}")
        partial.rename(archive)


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)
