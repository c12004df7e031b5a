"""What can go wrong, once: the codes that travel on the wire, what each means to a writer, and the exceptions.

The writer's reaction to a code is protocol (rule 21 of docs/protocol.md), so the table lives in the core and not in
the code that happens to receive an answer.
"""

from enum import Enum, IntEnum
from typing import Final


class Code(IntEnum):
    """A bookie's answer, as it travels. Numbers are part of the wire format and are never reused."""

    OK = 0
    FENCED = 1  # the ledger is fenced: a recovery has begun
    UNAUTHORIZED = 2  # wrong password
    TOO_LARGE = 3  # an entry or a message is over its limit
    BAD_FRAME = 4  # a checksum or a bound does not hold
    LIMBO = 5  # the bookie lost its disk and cannot vouch for this ledger yet
    READ_ONLY = 6  # no space for normal writes
    TIMEOUT = 7  # no answer in time (never sent: the client's own view)
    IO_ERROR = 8  # unreadable or corrupt; never "not found" (rule 26)
    CONNECTION_LOST = 9  # the stream ended (never sent: the client's own view)
    NO_SUCH_LEDGER = 10  # the ledger is not in the metadata, or no longer
    NO_SUCH_ENTRY = 11  # the bookie can vouch that it never stored the entry
    NOT_ATTACHED = 12  # frames before the stream presented the ledger's password
    UNAVAILABLE = 13  # starting, stopping or overloaded: try another bookie
    NOT_OPEN = 14  # a first frame for a ledger whose metadata is not OPEN (rule 20)
    TOO_MANY_REQUESTS = 15  # as many wait already as may: ask the same bookie again a little later


class Reaction(Enum):
    """What a writer does when a bookie answers an add with a code (rule 21)."""

    HANDLE_ENDS = "the handle ends: nothing more can be written through it"
    ADD_FAILS = "this add fails, the handle lives, no bookie is blamed"
    BOOKIE_FAILURE = "the bookie failed: change the ensemble"


REACTIONS: Final[dict[Code, Reaction]] = {
    Code.FENCED: Reaction.HANDLE_ENDS,
    Code.UNAUTHORIZED: Reaction.HANDLE_ENDS,
    Code.NO_SUCH_LEDGER: Reaction.HANDLE_ENDS,
    Code.NOT_OPEN: Reaction.HANDLE_ENDS,
    Code.TOO_LARGE: Reaction.ADD_FAILS,
    Code.BAD_FRAME: Reaction.ADD_FAILS,
    Code.LIMBO: Reaction.BOOKIE_FAILURE,
    Code.READ_ONLY: Reaction.BOOKIE_FAILURE,
    Code.TIMEOUT: Reaction.BOOKIE_FAILURE,
    Code.IO_ERROR: Reaction.BOOKIE_FAILURE,
    Code.CONNECTION_LOST: Reaction.BOOKIE_FAILURE,
    Code.NO_SUCH_ENTRY: Reaction.BOOKIE_FAILURE,
    Code.NOT_ATTACHED: Reaction.BOOKIE_FAILURE,
    Code.UNAVAILABLE: Reaction.BOOKIE_FAILURE,
    Code.TOO_MANY_REQUESTS: Reaction.BOOKIE_FAILURE,
}


class DaybookError(Exception):
    """Base of every error that Daybook raises on purpose. The message says what happened and what to do."""


class FrameError(DaybookError):
    """Bytes that are no frame: wrong magic, a bound or a checksum that does not hold."""


class IntervalError(DaybookError):
    """Bytes that are no interval index: a checksum, a bound or an order that does not hold (rule 26)."""


class EntryTooLargeError(DaybookError):
    """An entry over `ENTRY_BYTES_MAX`. It is refused before it is sent; the ledger stays writable."""


class MetadataError(DaybookError):
    """Ledger metadata that cannot be read, or a change that the protocol does not allow."""


class QuorumError(DaybookError, ValueError):
    """E ≥ Qw ≥ Qa ≥ 1 does not hold."""


class NotEnoughBookiesError(DaybookError):
    """No ensemble can be chosen: too few writable bookies, racks or nodes for the policy."""


class NotEnoughReplicasError(DaybookError):
    """Too few bookies of a write set answer: nothing is lost, but the operation cannot continue now."""


class LedgerFencedError(DaybookError):
    """Another client recovers or closed the ledger. The outcome of unacknowledged appends is unknown (rule 13)."""


class LedgerClosedError(DaybookError):
    """The handle was closed, or ended by an earlier error; open a new ledger to write on."""


class NoSuchLedgerError(DaybookError):
    """The ledger is not in the metadata: never created, or deleted."""


class NoSuchEntryError(DaybookError):
    """The entry is beyond the ledger's end, or beyond what the reader may see."""


class UnauthorizedError(DaybookError):
    """The password does not match the ledger's."""


class AlreadyAttachedError(DaybookError):
    """The ledger was attached for writing before; recover it and create a new one (rule 53)."""


class EntryIdError(DaybookError, ValueError):
    """A caller-assigned entry id that was used before, or is out of range (rule 55)."""


class BacklogFullError(DaybookError):
    """More is pending than `append_soon` may add to. Nothing was taken: append again when there is room."""


class ForceFailedError(DaybookError):
    """A force could not be answered by every bookie, or one restarted meanwhile (rule 22)."""


class RecoveryFailedError(DaybookError):
    """Recovery met answers that prove nothing; the ledger stays IN_RECOVERY: try again later (rule 6)."""


class LedgerChangedError(DaybookError):
    """The ledger's metadata is not at the version that a call was meant for: nothing was done; read it again (rule 56)."""


class DeadlineExceededError(DaybookError):
    """A call did not end within its `timeout_ms`. What it began may still take effect; a repeated call is safe."""


class TooManyRecoveriesError(DaybookError):
    """As many recoveries wait in this client as may: call again when some have ended."""


class DeletionRefusedError(DaybookError):
    """A ledger cannot be deleted without recovery now: a bookie could still acknowledge its writer, or a topic names it."""


class RepairError(DaybookError):
    """A repair cannot continue now. What was copied stays, and it is safe to start the repair again."""


class CorruptEntryError(DaybookError):
    """Every reachable replica of an entry fails its checksum or cannot be read."""


class TopicNameError(DaybookError, ValueError):
    """A name that no topic, tenant, namespace or subscription can have."""


class NoSuchTopicError(DaybookError):
    """The topic, or the subscription of it, is not in the metadata: never created, or deleted."""


class TopicExistsError(DaybookError):
    """The topic, or the subscription of it, exists already, and another call created it."""


class ManagedTopicError(DaybookError):
    """A resource of Kubernetes manages the topic: change that resource instead."""


class NotOwnerError(DaybookError):
    """Another broker owns the topic by now: stop all that is done for it, and let clients look it up again (rule 38)."""


class PlanOutdatedError(DaybookError):
    """What a job planned for a topic is about a ledger that is another by now: plan again."""


class LedgersNeededError(DaybookError):
    """A ledger that was to leave a topic stays: somebody needs it, or the retention keeps it."""


class CompactionError(DaybookError):
    """A topic cannot be compacted, or what a compaction wrote cannot be read. The topic itself is as it was."""


class RestoreError(DaybookError):
    """An offloaded ledger is not restored: what a job wrote is no copy of it. Its file is as it was."""


class PolicyError(DaybookError, ValueError):
    """A setting of a topic or a namespace that is not possible, or not together with the others. Nothing was set."""


class TopicTerminatedError(DaybookError):
    """The topic was ended for good: it takes no more messages, and what it has can be read."""


class TopicFullError(DaybookError):
    """The topic's list of ledgers has no room for more: what needs it is refused until ledgers were trimmed. Nothing is lost."""


class MetadataUnavailableError(DaybookError):
    """ZooKeeper does not answer. Open ledgers can still be written; what needs a metadata change waits (rule 46)."""
