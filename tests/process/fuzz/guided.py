"""One target under atheris, which follows coverage into what no sample reaches.

Usage: python -m tests.process.fuzz.guided TARGET [libFuzzer options], as `python -m tests.process.fuzz` calls it; with a file as an
option, that input alone is run again.
"""

import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Final

import atheris

MEMORY_BYTES: Final = 3 * 1024**3
"""Of addresses: what tries to allocate by what a length field says fails at once."""

with atheris.instrument_imports(include=["daybook", "daybook_bookie"]):
    from tests.process.fuzz.targets import TARGETS


def main() -> None:
    """See the module; ends the process."""
    target = TARGETS[sys.argv[1]]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with tempfile.TemporaryDirectory() as corpus:
        for number, sample in enumerate(target.samples):
            (Path(corpus) / f"{number}-raw").write_bytes(b"\0" + sample)
            for mode in (1, 2):
                (Path(corpus) / f"{number}-{mode}").write_bytes(bytes([mode, number]) + bytes(20))
        options = sys.argv[2:]
        if not any(os.path.isfile(option) for option in options):
            options.append(corpus)
        atheris.Setup([sys.argv[0], *options], lambda data: target.takes(target.input_of(data)))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
