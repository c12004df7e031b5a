"""The states of a member of the ensemble: a position, and what the writer makes of the bookie that metadata names there.

A bookie that fails must not stop the writer, and must not be forgotten either: metadata names it, so readers ask it and repair
counts on it. The state of a member says what it gets and what is done about it:

- LIVE: it gets every frame.
- FAILED: it failed, and gets nothing. Another bookie takes its place at once if an entry waits for it, or if it has not answered for
  acknowledged entries of the last fragment. Otherwise another one takes its place with the next append: a writer that has nothing to
  write, and whose bookies lack nothing, changes no metadata.
- MISSING: no other bookie can take its place. The writer continues with those that are left, as long as they are an ack
  quorum, and asks the missing one from time to time whether it is back (rule 45). It looks for a spare meanwhile.
- RETURNED: it answered. It still gets nothing: entries that it lacks would lie in the open fragment, which is never repaired
  (rule 31). A new fragment with the same bookies has to begin first.

A change of the ensemble ends each of these states: whoever metadata then names at the position is a new, LIVE member
(rule 16), also where it is the bookie that returned (rule 17).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class MemberState(Enum):
    """What the writer makes of the bookie at a position."""

    LIVE = "it gets every frame"
    FAILED = (
        "it failed; the ensemble changes when an entry needs it, or at once if it lacks acknowledged ones"
    )
    MISSING = "it failed and there is no spare: the writer continues without it (rule 45)"
    RETURNED = "it was missing and answers again; a new fragment brings it back"


TRANSITIONS: Final[Mapping[tuple[MemberState, MemberState], str]] = {
    (
        MemberState.LIVE,
        MemberState.FAILED,
    ): "it answers with an error of its own, is unreachable, or lags too far",
    (
        MemberState.FAILED,
        MemberState.MISSING,
    ): "an entry needs it or it lacks an acknowledged one, and no other bookie can take its place",
    (MemberState.MISSING, MemberState.RETURNED): "it answers a probe",
    (MemberState.RETURNED, MemberState.MISSING): "it fails again",
}
