"""Lists the directories that are spread by ledger id, page by page.

Rule 28: a listing is complete or it is an error. It raises the error of a directory that cannot be read, and an error for
a directory that is missing although its parent lists it, because directories are never removed. Rule 37: it reads one
directory at a time, and a page holds at most 10,000 ids, so a listing never floods the session.
"""

from collections.abc import AsyncIterator

from daybook.core.errors import MetadataError
from daybook.core.ids import LedgerId
from daybook.metadata.layout import ID_LEVELS, join_id
from daybook.metadata.store.store import MetadataStore, NoNodeError


class IncompleteListingError(MetadataError):
    """A listing could not be completed; the ids so far do not prove that other ids do not exist (rule 28)."""


async def list_ids(store: MetadataStore, root: str) -> AsyncIterator[tuple[LedgerId, ...]]:
    """The ids under `root` in ascending order, one directory per page; pages are never empty.

    An id that is created or deleted meanwhile may be in it or not. Raises IncompleteListingError, and
    MetadataUnavailableError when the store does not answer.
    """
    async for page in _list(store, root, "", len(ID_LEVELS) - 1):
        yield page


async def _list(
    store: MetadataStore, root: str, below: str, levels: int
) -> AsyncIterator[tuple[LedgerId, ...]]:
    names = await list_directory(store, f"{root}{below}")
    if levels == 0:
        if names:
            yield tuple(_id_of(root, f"{below}/{name}") for name in names)
        return
    for name in names:
        async for page in _list(store, root, f"{below}/{name}", levels - 1):
            yield page


async def list_directory(store: MetadataStore, path: str) -> tuple[str, ...]:
    """The children of a directory that must exist. Raises IncompleteListingError."""
    try:
        return await store.children(path)
    except NoNodeError as error:
        msg = f"directory {path} is missing: check that the cluster is formatted, and that no other program changes its nodes"
        raise IncompleteListingError(msg) from error


def _id_of(root: str, path: str) -> LedgerId:
    try:
        return join_id(path[1:])
    except ValueError as error:
        msg = f"{root}{path} is not a ledger's node: remove nodes that do not belong there"
        raise IncompleteListingError(msg) from error
