"""What the policy of a topic says to jobs: when the topic is compacted and offloaded, to where, and what stays.

A job takes all topics of a pool that have its *timing*, a schedule with its time zone: a JVM for each topic would not scale. The texts
of two timings are compared, not what they mean, so that `0 3 * * *` and `00 3 * * *` are two jobs. Kubernetes starts the jobs, so a
schedule is what its CronJobs take: five fields in numbers or names, or a word such as `@daily`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from daybook.core.errors import PolicyError
from daybook.core.ids import check_integer

UTC: Final = "Etc/UTC"
DEFAULT_LAG_MS: Final = 4 * 3_600_000
"""For this long the replicas of an offloaded ledger stay, as in Pulsar."""
PLACE_MAX: Final = 1024
_TEXT_MAX: Final = 128
_WORDS: Final = "yearly|annually|monthly|weekly|daily|midnight|hourly"
_MONTHS: Final = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DAYS: Final = "sun|mon|tue|wed|thu|fri|sat"
_FIELDS: Final = (
    "[0-5]?[0-9]",
    "[01]?[0-9]|2[0-3]",
    "0?[1-9]|[12][0-9]|3[01]",
    f"0?[1-9]|1[0-2]|{_MONTHS}",
    f"[0-6]|{_DAYS}",
)
_PLACE: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S+")
_ZONE: Final = re.compile(r"[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")


def _field(value: str) -> str:
    """A field of a cron line: `*`, values, ranges, steps, and lists of them."""
    item = rf"(?:[*?]|(?:{value})(?:-(?:{value}))?)(?:/[1-9][0-9]*)?"
    return f"{item}(?:,{item})*"


_SCHEDULE: Final = re.compile(f"@(?:{_WORDS})|" + " ".join(map(_field, _FIELDS)), re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Timing:
    """When a job runs: a cron line, and the time zone that it is read in. Raises PolicyError for what cannot be one."""

    schedule: str
    time_zone: str = UTC

    def __post_init__(self) -> None:
        """Check the form; whether there is such a time zone, Kubernetes judges."""
        if len(self.schedule) > _TEXT_MAX or not _SCHEDULE.fullmatch(self.schedule):
            msg = f"schedule={self.schedule[:_TEXT_MAX]!r}: use a cron line of five fields, like '0 3 * * *', or @daily and the like"
            raise PolicyError(msg)
        if (
            len(self.time_zone) > _TEXT_MAX
            or not _ZONE.fullmatch(self.time_zone)
            or self.time_zone == "Local"
        ):
            msg = f"timeZone={self.time_zone[:_TEXT_MAX]!r}: use a name like Europe/Berlin or {UTC}"
            raise PolicyError(msg)


@dataclass(frozen=True, slots=True)
class CompactionTerms:
    """When a topic is compacted, and whether its messages without a key stay."""

    timing: Timing
    keeps_keyless: bool = True
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """The stored form."""
        return {**self.unknown_fields, **_timing_record(self.timing), "keepsKeyless": self.keeps_keyless}

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """Read the stored form. Raises PolicyError."""
        rest = _object(record, "compaction")
        return cls(_timing_of(rest), _flag(rest, "keepsKeyless", default=True), rest)


@dataclass(frozen=True, slots=True)
class OffloadTerms:
    """When the closed ledgers of a topic are copied, and to where. Raises PolicyError for what cannot be.

    `to` is a directory as a URI: `s3://bucket/path`, `file:///path`. `lag_ms`: for so long the replicas on bookies stay behind it.
    `with_rows`: jobs also write the messages as plain rows, in a file beside that of the entries.
    """

    timing: Timing
    to: str
    lag_ms: int = DEFAULT_LAG_MS
    with_rows: bool = False
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the place and the lag."""
        if len(self.to) > PLACE_MAX or not _PLACE.fullmatch(self.to):
            msg = f"offload.to={self.to[:_TEXT_MAX]!r}: use a URI of at most {PLACE_MAX} characters, like s3://bucket/daybook"
            raise PolicyError(msg)
        if self.lag_ms < 0:
            msg = f"offload.lagMs={self.lag_ms}: at least 0 is needed"
            raise PolicyError(msg)

    def to_record(self) -> dict[str, Any]:
        """The stored form."""
        own = {"to": self.to, "lagMs": self.lag_ms, "withRows": self.with_rows}
        return {**self.unknown_fields, **_timing_record(self.timing), **own}

    @classmethod
    def from_record(cls, record: Any) -> Self:
        """Read the stored form. Raises PolicyError."""
        rest = _object(record, "offload")
        timing, with_rows = _timing_of(rest), _flag(rest, "withRows", default=False)
        to, lag = _text(rest, "to"), rest.pop("lagMs", DEFAULT_LAG_MS)
        try:
            lag_ms = check_integer(lag)
        except (TypeError, ValueError) as error:
            msg = f"offload.lagMs={str(lag)[:_TEXT_MAX]!r} is not possible: use a whole number"
            raise PolicyError(msg) from error
        return cls(timing, to, lag_ms, with_rows, rest)


def _timing_record(timing: Timing) -> dict[str, str]:
    return {"schedule": timing.schedule, "timeZone": timing.time_zone}


def _timing_of(rest: dict[str, Any]) -> Timing:
    """Takes the fields out of `rest`."""
    return Timing(_text(rest, "schedule"), _text(rest, "timeZone", UTC))


def _object(record: Any, name: str) -> dict[str, Any]:
    if isinstance(record, Mapping):
        return dict(record)
    msg = f"{name}={str(record)[:_TEXT_MAX]!r}: use an object with a schedule"
    raise PolicyError(msg)


def _text(rest: dict[str, Any], name: str, default: str = "") -> str:
    value = rest.pop(name, default)
    if isinstance(value, str):
        return value
    msg = f"{name}={str(value)[:_TEXT_MAX]!r} is not possible: use a text"
    raise PolicyError(msg)


def _flag(rest: dict[str, Any], name: str, *, default: bool) -> bool:
    value = rest.pop(name, default)
    if isinstance(value, bool):
        return value
    msg = f"{name}={str(value)[:_TEXT_MAX]!r} is not possible: use true or false"
    raise PolicyError(msg)
