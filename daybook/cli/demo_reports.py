"""What the second act's producer and consumers report to the demo: a line of JSON each time."""

import json
from dataclasses import dataclass, field
from typing import Self


@dataclass(slots=True)
class Produced:
    """What has a receipt so far, and the longest time without one, by partition: (begin, end) in seconds."""

    acknowledged: int = 0
    failed: int = 0
    seconds: float = 0.0
    gaps: dict[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Parse what the producing process printed."""
        return cls(**json.loads(line))


@dataclass(slots=True)
class Consumed:
    """What arrived so far. `disordered` counts messages that came before an earlier one of their partition, for the first time."""

    arrived: int = 0
    distinct: int = 0
    changed: int = 0
    disordered: int = 0
    seconds: float = 0.0

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Parse what the consuming process printed."""
        return cls(**json.loads(line))
