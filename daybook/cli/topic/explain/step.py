"""A step of an explanation: what was judged, what shows it, and what to do next."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

EVIDENCE_MAX: Final = 5
"""Lines of evidence of one step; a last line says how many more there are."""


class Verdict(Enum):
    """Whether what a step is about is as it should be."""

    FINE = "ok"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `next_command` is empty where nothing is left to do."""

    name: str
    verdict: Verdict
    what: str
    evidence: tuple[str, ...] = ()
    next_command: str = ""

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "step": self.name,
            "verdict": self.verdict.value,
            "what": self.what,
            "evidence": list(self.evidence),
            "nextCommand": self.next_command,
        }


def limited(lines: list[str]) -> tuple[str, ...]:
    """The first lines of evidence, and how many more there are."""
    if len(lines) <= EVIDENCE_MAX:
        return tuple(lines)
    return (*lines[:EVIDENCE_MAX], f"and {len(lines) - EVIDENCE_MAX:,} more")


def age(span_ms: int) -> str:
    """A span of time with its two largest units, like `3 h 12 min`."""
    rest_s = max(span_ms, 0) // 1000
    parts = []
    for unit, size_s in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest_s = divmod(rest_s, size_s)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
