"""Walks directories spread by ledger id, page by page.

Rule 28: a listing is whole or it is an error. A directory that cannot be read ends the walk with that error, and so
does one that is gone although its parent lists it, since directories are never removed. Rule 37: one directory is
read at a time and a page holds at most 10,000 ids, so a walk never floods the session.
"""

from collections.abc import AsyncIterator

from daybook.core.errors import MetadataError
from daybook.core.ids import LedgerId
from daybook.metadata.layout import ID_LEVELS, join_id
from daybook.metadata.store.store import MetadataStore, NoNodeError


class IncompleteListingError(MetadataError):
    """A listing could not be completed; what was listed so far proves nothing about what exists (rule 28)."""


async def walk_ids(store: MetadataStore, root: str) -> AsyncIterator[tuple[LedgerId, ...]]:
    """The ids under `root` in rising order, one directory a page; pages are never empty.

    An id that is created or deleted during the walk may be in it or not. Raises IncompleteListingError, and
    MetadataUnavailableError when the store does not answer.
    """
    async for page in _walk(store, root, "", len(ID_LEVELS) - 1):
        yield page


async def _walk(
    store: MetadataStore, root: str, below: str, levels: int
) -> AsyncIterator[tuple[LedgerId, ...]]:
    names = await list_directory(store, f"{root}{below}")
    if levels == 0:
        if names:
            yield tuple(_id_of(root, f"{below}/{name}") for name in names)
        return
    for name in names:
        async for page in _walk(store, root, f"{below}/{name}", levels - 1):
            yield page


async def list_directory(store: MetadataStore, path: str) -> tuple[str, ...]:
    """The children of a directory that must be there. Raises IncompleteListingError."""
    try:
        return await store.children(path)
    except NoNodeError as error:
        msg = f"directory {path} is missing: is the cluster formatted, and does nobody else change its nodes?"
        raise IncompleteListingError(msg) from error


def _id_of(root: str, path: str) -> LedgerId:
    try:
        return join_id(path[1:])
    except ValueError as error:
        msg = f"{root}{path} is not a ledger's node: remove what does not belong there"
        raise IncompleteListingError(msg) from error
