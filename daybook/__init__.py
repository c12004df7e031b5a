"""A replicated, segmented log: append entries to ledgers that survive the loss of processes, disks and nodes.

Names are imported when they are first used, so that `import daybook` costs nothing, a bookie never loads the client,
and a command prints its help at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from daybook.client.client import Client
    from daybook.client.connecting import connect
    from daybook.client.ledger import Ledger
    from daybook.client.reader import Reader
    from daybook.core.errors import (
        AlreadyAttachedError,
        CorruptEntryError,
        DaybookError,
        DeadlineExceededError,
        DeletionRefusedError,
        EntryIdError,
        EntryTooLargeError,
        ForceFailedError,
        LedgerChangedError,
        LedgerClosedError,
        LedgerFencedError,
        MetadataUnavailableError,
        NoSuchEntryError,
        NoSuchLedgerError,
        NotEnoughBookiesError,
        NotEnoughReplicasError,
        QuorumError,
        RecoveryFailedError,
        TooManyRecoveriesError,
        UnauthorizedError,
    )
    from daybook.core.format.entries import Entry

    __version__: str

__all__ = [
    "AlreadyAttachedError",
    "Client",
    "CorruptEntryError",
    "DaybookError",
    "DeadlineExceededError",
    "DeletionRefusedError",
    "Entry",
    "EntryIdError",
    "EntryTooLargeError",
    "ForceFailedError",
    "Ledger",
    "LedgerChangedError",
    "LedgerClosedError",
    "LedgerFencedError",
    "MetadataUnavailableError",
    "NoSuchEntryError",
    "NoSuchLedgerError",
    "NotEnoughBookiesError",
    "NotEnoughReplicasError",
    "QuorumError",
    "Reader",
    "RecoveryFailedError",
    "TooManyRecoveriesError",
    "UnauthorizedError",
    "__version__",
    "connect",
]

_HOMES: Final = {
    "Client": "daybook.client.client",
    "Entry": "daybook.core.format.entries",
    "Ledger": "daybook.client.ledger",
    "Reader": "daybook.client.reader",
    "connect": "daybook.client.connecting",
}
"""Where names come from that are no errors."""


def __getattr__(name: str) -> object:
    """Import `name` on first use (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("daybook")
    if name not in __all__:
        msg = f"module 'daybook' has no attribute {name!r}"
        raise AttributeError(msg)
    value: object = getattr(import_module(_HOMES.get(name, "daybook.core.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What `from daybook import …` offers."""
    return list(__all__)
