"""`import daybook` is cheap, and offers what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import daybook
from tests.paths import ROOT


def test_import_loads_nothing_that_a_user_has_not_asked_for() -> None:
    script = "import daybook, sys; print(sorted({'grpc', 'kazoo', 'lmdb', 'asyncio', 'structlog'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", daybook.__all__)
def test_every_name_on_offer_is_there(name: str) -> None:
    assert getattr(daybook, name)
    assert name in dir(daybook)


def test_a_name_that_is_not_there_is_refused_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'daybook' has no attribute 'conect'"):
        getattr(daybook, "conect")  # noqa: B009 - the type checker knows as well that it is not there


def test_the_readmes_examples_pass_the_type_checker(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    examples = []
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
        examples.append(tmp_path / f"example_{number}.py")
        examples[-1].write_text(code, encoding="utf-8")
    assert examples
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *map(str, examples)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
