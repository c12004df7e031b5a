"""What becomes of the files of a topic that was deleted: nobody is left whose list would give them up (rule 73).

A topic's deletion is not in the object store, and its list, which would say when it was, is gone. So the first run that finds files
without a topic notes that beside them, and a run that finds the note older than the grace deletes them. A topic of the same name takes the
note away, and keeps all files of the folder: its own offloads delete what its list does not name (rule 70). No list ever names a file of a
former topic, since it names those of its own runs alone; only a restore of the metadata brings a former list back, which is what the grace is for.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from daybook.core.topics.name import TopicName

OF_A_JOB: Final = re.compile(r"_?[0-9]+-[0-9a-f]{16,64}-[0-9]+\.parquet")
"""The names of files that offloads write: of entries, of rows, and of rows that wait."""


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """What was found in the folder of a topic."""

    topic: TopicName
    names: Collection[str]
    """Of the files; one of rows has the name of its entries, after a `_` while it waits."""
    noted_ms: int | None = None
    """When a run noted that the topic is gone, in ms since 1970 by the clock of the object store; None: none did."""


class Verdict(NamedTuple):
    """What a run does with a folder: at most one of these."""

    note: bool = False
    """Note that the topic is gone."""
    forget: bool = False
    """Take such a note away."""
    delete: tuple[str, ...] = ()
    """The names of the files to delete; the note goes after the last."""


def judge_files(
    found: FoundFiles, named: Collection[str], *, exists: bool, grace_ms: int, unix_ms: int
) -> Verdict:
    """Judge a folder. `exists`: whether the topic has a list; `named`: the names of the entries files that the lists of all topics name.

    A file that no offload has written stays, and so does one that a list names, of whatever topic and by whatever URI.
    """
    going = tuple(
        sorted(
            name for name in found.names if OF_A_JOB.fullmatch(name) and name.removeprefix("_") not in named
        )
    )
    if exists or not going:
        return Verdict(forget=found.noted_ms is not None)
    if unix_ms - (unix_ms if found.noted_ms is None else found.noted_ms) >= grace_ms:
        return Verdict(delete=going)
    return Verdict(note=found.noted_ms is None)
