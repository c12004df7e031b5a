"""What a test measured, noted as a line of JSON where `make slo` asks for it; an ordinary run notes nothing."""

import json
import os
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "DAYBOOK_SLO"
"""Names the file that measurements are appended to."""


def is_asked_for() -> bool:
    """Whether somebody measures: then a test may take minutes."""
    return VARIABLE in os.environ


def note(kind: str, test: str, **figures: Any) -> None:  # any value that JSON has
    """Append one measurement of `test`, the test's node id."""
    file = os.environ.get(VARIABLE)
    if file:
        with Path(file).open("a", encoding="utf-8") as out:
            out.write(json.dumps({"kind": kind, "test": test, **figures}) + "\n")
