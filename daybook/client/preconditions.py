"""What has to hold before a call does anything, and how long it may take."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from daybook.core.errors import DeadlineExceededError, LedgerChangedError, UnauthorizedError
from daybook.core.ledger.metadata import LedgerMetadata, password_key
from daybook.metadata.store.store import Versioned


def check_password(metadata: LedgerMetadata, password: bytes) -> None:
    """Raise UnauthorizedError unless `password` is the ledger's; bookies check the same on their own."""
    if not secrets.compare_digest(password_key(password, metadata.password_hash), metadata.password_hash):
        msg = f"the password of ledger {metadata.ledger_id} is another one"
        raise UnauthorizedError(msg)


def check_version(found: Versioned[LedgerMetadata], expected: int | None) -> None:
    """Raise LedgerChangedError unless the metadata is at the version that a call is meant for; None: at any."""
    if expected is not None and found.version != expected:
        msg = (
            f"the metadata of ledger {found.value.ledger_id} is at version {found.version}, and the call was meant for version "
            f"{expected}: nothing was done; read it again and decide anew"
        )
        raise LedgerChangedError(msg)


@asynccontextmanager
async def deadline(timeout_ms: int | None, what: str) -> AsyncIterator[None]:
    """Give the block up after `timeout_ms`, with DeadlineExceededError; None: never. Raises ValueError for none at all."""
    if timeout_ms is not None and timeout_ms <= 0:
        msg = f"a time-out of {timeout_ms} ms leaves no time: give a positive number, or None for no time-out"
        raise ValueError(msg)
    limit = asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        msg = f"{what} did not end within {timeout_ms} ms; what it began may still take effect: try again"
        raise DeadlineExceededError(msg) from error
