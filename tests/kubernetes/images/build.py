"""Builds the Dockerfile's targets on this machine: on a base of Debian's packages, by buildah.

No image registry is needed, and nothing is built twice: results are kept outside the tree under a key of all that went
into them. Root only, since a base image is made of files that belong to root.
"""

import hashlib
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.fixtures.package_index import locked, user_cache
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
    "tools/compiled",
)
NOT_IN_KEY: Final = ("README.md", "LICENSE")
"""What a wheel has too, and what changes nothing that runs."""
SUITE: Final = "forky"
"""The first of Debian's releases with the Python of the Dockerfile's own base."""
SUITE_SCRIPT: Final = "sid"
"""How that is unpacked, for a debootstrap that is older than the release."""
BASE_NAME: Final = f"localhost/daybook-base:{SUITE}"
KEPT_STAGES: Final = {
    "dependencies": "downloading what the images are made of (minutes, whenever uv.lock changed)",
    "wheels": "making and compiling Daybook's wheels (minutes, whenever a source changed)",
}
"""They have names, so that the next build has them, and what to say of each."""
BASE_PACKAGES: Final = "python3,python3-venv,ca-certificates"
CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
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
    if os.geteuid() != 0:
        msg = "a base image is made of files that belong to root: run this as root"
        raise CannotBuildError(msg)


def buildah(*arguments: object) -> str:
    """Run buildah on storage of our own; its standard output. Raises CannotBuildError with what it said.

    Its network configuration is ours as well, although builds have the machine's own network: it makes /etc/cni otherwise.
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
        run("debootstrap", "--variant=minbase", f"--include={BASE_PACKAGES}", SUITE, tree, "", SUITE_SCRIPT)
        check_python(tree)
        # a mirror may be weeks behind, and says so of a release that is not out yet
        (tree / "etc/apt/apt.conf.d/any-age").write_text('Acquire::Check-Valid-Until "false";\n')
        for left in ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
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


def check_python(tree: Path) -> None:
    """Raise CannotBuildError unless Debian's Python is of the release that the Dockerfile's own base has."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (wanted,) = re.findall(r"^ARG BASE=\S+/python:(\d+\.\d+)\.", text, re.MULTILINE)
    found = (tree / "usr/bin/python3").readlink().name
    if found != f"python{wanted}":
        msg = f"Debian {SUITE} has {found}, and the Dockerfile's base Python {wanted}: change one of them"
        raise CannotBuildError(msg)


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
            build_archives(archives, tag, tree)
    return archives


def build_archives(archives: Mapping[str, Path], tag: str, tree: Path) -> None:
    """Make the archive of each target. The base and the storage are shared, so the caller holds the lock.

    A build trusts whom this machine trusts, since it downloads from the package indexes that this machine reaches.
    """
    flags = ("--isolation", "chroot", "--layers", "--volume", f"{trusted_certificates()}:{CERTIFICATES}:ro")
    what = ("--build-arg", f"BASE={make_base()}", "--file", tree / "Dockerfile")
    for stage, text in KEPT_STAGES.items():
        say(text)
        buildah("bud", *flags, *what, "--target", stage, "--tag", f"localhost/daybook-{stage}", tree)
    for target, archive in archives.items():
        say(f"building {image_name(target, tag)}")
        name = f"localhost/{image_name(target, tag)}"
        buildah("bud", *flags, *what, "--target", target, "--tag", name, tree)
        for old in cache().glob(f"daybook-{target}-{tag}-*.tar"):
            old.unlink()
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        buildah("push", name, f"docker-archive:{partial}:{image_name(target, tag)}")
        partial.rename(archive)
    buildah("rmi", "--prune", "--force")  # what no name leads to, or each build would leave gigabytes


def trusted_certificates() -> str:
    """The file of those whom this machine trusts."""
    return os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or CERTIFICATES


def say(text: str) -> None:
    """Progress, for people."""
    print(text, file=sys.stderr, flush=True)
