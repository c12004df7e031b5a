"""The managed ledger: a topic's ledgers as one log, under one owner.

A new owner reads the list, fences and recovers the ledger that is open in it, and then writes the list under a token of its own. Only
then does it serve (rule 38). Whatever the former owner still tries fails from then on: its ledger is fenced, and the list's version
is another. An owner that finds another's list stops everything.

A ledger is created for the first message, and named in the list before anything is written to it; a ledger that is not named when
the owner is superseded is deleted, if it is certain that it never will be. After a limit of entries, bytes or age the owner waits
until all that was sent is acknowledged, closes the ledger and begins another, whose name and the end of the old one are one change of
the list. It closes an idle ledger, too, so that a fail-over has nothing to recover.

While a ledger cannot be created, the owner asks for one again and again, with a pause. It records the end of the last ledger meanwhile, and
changes the list as without messages that wait: bookies that are full may have room only once ledgers were trimmed.

When a ledger takes nothing more, its writer may have been fenced by the auditor, or by a new owner that has not written the list yet.
The owner reads the list, recovers the ledger, and acknowledges what is in it: for every owner it is. The rest goes to the next ledger
in the same order; if a new owner was first, the list says so before anything is sent (rule 50).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Phase(Enum):
    """What an owner does."""

    READING = "the list is being read"
    RECOVERING = "the former owner's ledger is being recovered"
    TAKING_OVER = "the list is written under the own token"
    IDLE = "no ledger is open"
    CREATING = "a ledger is being created"
    NAMING = "the list is to name the new ledger"
    OPEN = "messages go to the ledger"
    TRIMMING = "the list is to lose its first ledgers"
    COMPACTING = "the list is to name what a compaction wrote"
    OFFLOADING = "the list is to name files of ledgers, to give up their replicas, or to name copies of them"
    CLOSING = "the ledger takes no more; it is closed once all is acknowledged"
    ASKING = "the ledger failed; the list says who owns the topic"
    RESCUING = "the failed ledger is being recovered"
    RECORDING = "the list is to say that the ledger is closed, or the topic terminated"
    ENDED = "the topic is not served"


TRANSITIONS: Final[Mapping[tuple[Phase, Phase], str]] = {
    (Phase.READING, Phase.RECOVERING): "a ledger is open in the list",
    (Phase.READING, Phase.TAKING_OVER): "all ledgers are closed",
    (Phase.READING, Phase.ENDED): "there is no such topic",
    (Phase.RECOVERING, Phase.TAKING_OVER): "the ledger is closed",
    (Phase.RECOVERING, Phase.READING): "it cannot be recovered; perhaps its owner has trimmed it",
    (Phase.TAKING_OVER, Phase.IDLE): "the list is ours (rule 38)",
    (Phase.TAKING_OVER, Phase.ENDED): "another owner was first",
    (Phase.IDLE, Phase.CREATING): "a message came",
    (Phase.IDLE, Phase.TRIMMING): "ledgers can go (rule 51)",
    (Phase.IDLE, Phase.COMPACTING): "a compaction has written (rule 41)",
    (Phase.IDLE, Phase.OFFLOADING): "files or copies are written, or replicas can go (rule 70, rule 72)",
    (Phase.IDLE, Phase.RECORDING): "terminated",
    (Phase.IDLE, Phase.ENDED): "unloaded",
    (Phase.CREATING, Phase.NAMING): "the ledger exists",
    (Phase.CREATING, Phase.RECORDING): "it cannot be created yet, and the list lacks the end of the last one",
    (Phase.CREATING, Phase.TRIMMING): "it cannot be created yet, and ledgers can go (rule 51)",
    (Phase.CREATING, Phase.COMPACTING): "it cannot be created yet, and a compaction has written (rule 41)",
    (
        Phase.CREATING,
        Phase.OFFLOADING,
    ): "it cannot be created yet, and files or copies are written, or replicas can go (rule 70, rule 72)",
    (Phase.NAMING, Phase.OPEN): "it is named",
    (Phase.NAMING, Phase.ENDED): "another owner was first",
    (Phase.OPEN, Phase.TRIMMING): "ledgers can go (rule 51)",
    (Phase.OPEN, Phase.COMPACTING): "a compaction has written (rule 41)",
    (Phase.OPEN, Phase.OFFLOADING): "files or copies are written, or replicas can go (rule 70, rule 72)",
    (Phase.OPEN, Phase.CLOSING): "full, old, idle, or to be unloaded",
    (Phase.OPEN, Phase.ASKING): "it takes no more (rule 50)",
    (Phase.TRIMMING, Phase.IDLE): "they are gone",
    (Phase.TRIMMING, Phase.OPEN): "they are gone, and messages continue",
    (Phase.TRIMMING, Phase.ASKING): "they are gone, and the ledger failed meanwhile",
    (Phase.TRIMMING, Phase.ENDED): "another owner was first",
    (Phase.COMPACTING, Phase.IDLE): "it is named",
    (Phase.COMPACTING, Phase.OPEN): "it is named, and messages continue",
    (Phase.COMPACTING, Phase.ASKING): "it is named, and the ledger failed meanwhile",
    (Phase.COMPACTING, Phase.ENDED): "another owner was first",
    (Phase.OFFLOADING, Phase.IDLE): "it is stored",
    (Phase.OFFLOADING, Phase.OPEN): "it is stored, and messages continue",
    (Phase.OFFLOADING, Phase.ASKING): "it is stored, and the ledger failed meanwhile",
    (Phase.OFFLOADING, Phase.ENDED): "another owner was first",
    (Phase.CLOSING, Phase.CREATING): "it is closed, and messages wait",
    (Phase.CLOSING, Phase.RECORDING): "it is closed",
    (Phase.CLOSING, Phase.ASKING): "it could not be closed",
    (
        Phase.CLOSING,
        Phase.ENDED,
    ): "a person has closed it without recovery, before its last acknowledged entry (rule 61)",
    (Phase.ASKING, Phase.RESCUING): "the topic is still ours",
    (Phase.ASKING, Phase.ENDED): "another owner has it",
    (Phase.RESCUING, Phase.CREATING): "its end is known, and messages wait",
    (Phase.RESCUING, Phase.RECORDING): "its end is known",
    (
        Phase.RESCUING,
        Phase.ENDED,
    ): "a person closed it without recovery, before its last acknowledged entry (rule 61)",
    (Phase.RESCUING, Phase.ASKING): "it cannot be recovered; perhaps another owner has trimmed it",
    (Phase.RECORDING, Phase.IDLE): "it is recorded",
    (Phase.RECORDING, Phase.ENDED): "another owner was first",
}

CHANGING: Final = frozenset({Phase.TRIMMING, Phase.COMPACTING, Phase.OFFLOADING})
"""The list changes, and the open ledger is written as before."""
