"""The README's programs, with Daybook's client and with Pulsar's, run as they stand there."""

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


def program(of: str) -> str:
    """The only program with a line `of`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (found,) = [block for block in blocks if of in block.splitlines()]
    return str(found)


def test_the_lines_that_use_pulsars_client_are_ten_without_imports_and_empty_ones() -> None:
    lines = [line for line in program("import pulsar").splitlines() if line and not line.startswith("import")]
    assert len(lines) <= 10


@pytest.mark.parametrize("of", ["import pulsar", "import daybook"])
def test_each_runs_against_two_brokers(brokers: Brokers, of: str) -> None:
    text = program(of)
    assert DIRECTORY in text
    here = text.replace(DIRECTORY, str(brokers.cluster.directory))
    ended = subprocess.run(
        [sys.executable, "-c", here], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "b'hello'" in ended.stdout
