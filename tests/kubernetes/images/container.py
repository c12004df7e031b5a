"""Runs a command in an image as a strict cluster would: user 65532, nothing writable but /tmp and volumes, no way up.

It takes no container runtime: the image's file system is mounted read-only in a mount namespace of its own, with an
empty /tmp. The network is this machine's, so that tests reach what runs in there.
"""

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.kubernetes.images.build import buildah, image_name

USER: Final = 65532
TIMEOUT_S: Final = 60.0
ENTER: Final = """
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
mount -o remount,ro,bind "$ROOT"
mount -t tmpfs -o mode=1777 tmpfs "$ROOT/tmp"
mount -t proc proc "$ROOT/proc"
for device in null urandom; do mount --bind "/dev/$device" "$ROOT/dev/$device"; done
for volume in $VOLUMES; do mount --bind "${volume%%:*}" "$ROOT/${volume##*:}"; done
"""


class Image:
    """A built image, unpacked for as long as it is used."""

    def __init__(self, target: str, tag: str) -> None:
        """Prepare."""
        self._name = f"localhost/{image_name(target, tag)}"
        self._container = ""
        self.root = Path()
        self.config: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Unpack it."""
        self.config = json.loads(buildah("inspect", "--type", "image", self._name))["OCIv1"]["config"]
        self._container = buildah("from", self._name).strip()
        self.root = Path(buildah("mount", self._container).strip())
        for device in ("null", "urandom"):
            (self.root / "dev" / device).touch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what was unpacked."""
        buildah("umount", self._container)
        buildah("rm", self._container)

    def start(
        self,
        command: Sequence[str] = (),
        *,
        variables: Mapping[str, str] | None = None,
        volumes: Mapping[str, Path] | None = None,
    ) -> subprocess.Popen[str]:
        """Start the image's own command, or another one; `volumes` are writable there, by where they are mounted."""
        given = [f"{name}={value}" for name, value in (variables or {}).items()]
        entry_point = self.config.get("Entrypoint", ())
        inner = ["env", "-i", *self.config["Env"], *given, *entry_point, *(command or self.config["Cmd"])]
        user = (f"--userspec={USER}:{USER}", "--groups=")
        outer = shlex.join(["chroot", *user, str(self.root), "setpriv", "--no-new-privs", *inner])
        for inside, outside in (volumes or {}).items():
            (self.root / inside.lstrip("/")).mkdir(parents=True, exist_ok=True)
            os.chown(outside, USER, USER)
        bound = " ".join(f"{outside}:{inside.lstrip('/')}" for inside, outside in (volumes or {}).items())
        return subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", f"{ENTER}exec {outer}"],
            env={**os.environ, "ROOT": str(self.root), "VOLUMES": bound},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str, **variables: str) -> tuple[int, str]:
        """Run a command to its end; exit code and output."""
        process = self.start(command, variables=variables)
        output, _ = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, output


def stop(process: subprocess.Popen[str]) -> None:
    """Ask what `Image.start` started to end, as a cluster does; `process` has its exit code."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for child in children.read_text().split():
        os.kill(int(child), signal.SIGTERM)


def end(process: subprocess.Popen[str]) -> str:
    """End what `Image.start` started, with all its processes; what it printed.

    Its first process is killed itself: it would outlive `unshare`, since a change of user clears the signal at the parent's death.
    """
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for child in children.read_text().split() if process.poll() is None else ():
        os.kill(int(child), signal.SIGKILL)
    process.kill()
    output, _ = process.communicate()
    return output
