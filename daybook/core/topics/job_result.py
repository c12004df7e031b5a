"""What a job did for a topic the last time: the record that it leaves beside the topic's policy, for people and for the operator.

The record is a message, not a fact: nothing but a status relies on it, and the next run of the job replaces it. What it says is
bounded, so that a job that fails strangely cannot fill a node.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from daybook.core.errors import MetadataError
from daybook.core.format.stored_record import read_record
from daybook.core.ids import check_integer

FORMAT_VERSION: Final = 1
MESSAGE_MAX: Final = 1024
"""Characters of a message; `JobResult.of` cuts a longer one."""
FIGURES_MAX: Final = 32
_JOB: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
_FIGURE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,39}")


def check_job(job: str) -> str:
    """Return `job` if a job can be called so; raise MetadataError otherwise."""
    if not _JOB.fullmatch(job):
        msg = f"{job[:100]!r} is no name of a job: use up to 40 lower-case letters, digits and '-'"
        raise MetadataError(msg)
    return job


@dataclass(frozen=True, slots=True)
class JobResult:
    """The last run of a job for one topic; times in ms since 1970. Raises MetadataError for what no result can be.

    `message` says what went wrong and what to do; of a run that succeeded it may be empty. `figures` are counts by name, like
    `{"entriesKept": 12}`.
    """

    job: str
    started_ms: int
    ended_ms: int
    succeeded: bool
    message: str = ""
    figures: Mapping[str, int] = field(default_factory=dict)
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the bounds."""
        check_job(self.job)
        if not 0 <= self.started_ms <= self.ended_ms:
            _refuse(f"it began at {self.started_ms} and ended at {self.ended_ms}")
        if len(self.message) > MESSAGE_MAX:
            _refuse(f"its message has {len(self.message)} characters, of at most {MESSAGE_MAX}")
        if len(self.figures) > FIGURES_MAX:
            _refuse(f"it has {len(self.figures)} figures, of at most {FIGURES_MAX}")
        for name in self.figures:
            if not _FIGURE.fullmatch(name):
                _refuse(f"{name[:100]!r} names no figure")

    @classmethod
    def of(
        cls,
        job: str,
        started_ms: int,
        ended_ms: int,
        *,
        error: str = "",
        message: str = "",
        figures: Mapping[str, int] | None = None,
    ) -> Self:
        """The result of a run that failed with `error`, or of one that did not: too long a text is cut, and a clock that was set back
        ends the run when it began.
        """
        text = error or message
        if len(text) > MESSAGE_MAX:
            text = text[: MESSAGE_MAX - 1] + "…"
        return cls(job, started_ms, max(started_ms, ended_ms), not error, text, figures or {})

    def to_json(self) -> bytes:
        """The record as it is stored; unknown fields that were read are written back."""
        record: dict[str, Any] = {
            **self.unknown_fields,
            "formatVersion": FORMAT_VERSION,
            "job": self.job,
            "startedMs": self.started_ms,
            "endedMs": self.ended_ms,
            "succeeded": self.succeeded,
            "message": self.message,
            "figures": dict(self.figures),
        }
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a stored record. Raises MetadataError for anything that `to_json` of a known version cannot make."""
        return read_record(data, "result of a job", FORMAT_VERSION, cls._from_record)

    @classmethod
    def _from_record(cls, record: dict[str, Any]) -> Self:
        succeeded = record.pop("succeeded")
        if not isinstance(succeeded, bool):
            _refuse(f"succeeded={str(succeeded)[:100]!r} is neither true nor false")
        return cls(
            job=str(record.pop("job")),
            started_ms=check_integer(record.pop("startedMs")),
            ended_ms=check_integer(record.pop("endedMs")),
            succeeded=succeeded,
            message=str(record.pop("message")),
            figures={str(name): check_integer(value) for name, value in record.pop("figures").items()},
            unknown_fields=record,
        )


def _refuse(why: str) -> None:
    msg = f"this is no result of a job: {why}"
    raise MetadataError(msg)
