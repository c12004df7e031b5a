"""Images of one static program, written as a tar by hand: no registry, no image builder.

One is that of the process which holds a pod's namespaces, another that of CoreDNS.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any, Final

from tests.cluster.node_files import PAUSE_IMAGE

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(program: Path, machine: str, target: Path, name: str = PAUSE_IMAGE) -> None:
    """Write an image archive whose one layer is `program`, for `ctr images import`."""
    layer = _tar({program.name: program.read_bytes()}, mode=0o755)
    config: dict[str, Any] = {
        "architecture": _ARCHITECTURES[machine],
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    files = {
        "layer.tar": layer,
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    target.write_bytes(_tar(files, mode=0o644))


def _tar(files: dict[str, bytes], *, mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
