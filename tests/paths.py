"""Where the project's files are, whichever folder a test is in."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
"""The project's top folder."""
