"""The README's program with Pulsar's client runs as it stands there."""

import re
import subprocess
import sys
from typing import Final

import pytest

from tests.fixtures.brokers import Brokers
from tests.paths import ROOT

pytestmark = pytest.mark.integration

DIRECTORY: Final = "/tmp/daybook"
WAIT_S: Final = 60


def program() -> str:
    """The program, which is the only one that uses Pulsar's client."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (found,) = [
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "import pulsar" in block
    ]
    return str(found)


def test_its_lines_are_ten_without_imports_and_empty_ones() -> None:
    lines = [line for line in program().splitlines() if line and not line.startswith("import")]
    assert len(lines) <= 10


def test_it_runs_against_two_brokers(brokers: Brokers) -> None:
    text = program()
    assert DIRECTORY in text
    here = text.replace(DIRECTORY, str(brokers.cluster.directory))
    ended = subprocess.run(
        [sys.executable, "-c", here], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "b'hello'" in ended.stdout
