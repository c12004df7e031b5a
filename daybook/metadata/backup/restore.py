"""Writes an export back into ZooKeeper, so that nothing is deleted, given out twice or closed too early because of it (rule 68).

In this order: the file is read once as a whole, so that a damaged one changes nothing; collection is held (`metadata.hold`); the
nodes are written, and the cluster's identity last of them, so that no process works on half of it. The counter of ledger ids
is still missing then, and without it no ledger begins. `finish` creates it, once the bookies were asked for the highest id
that they hold: the ids of ledgers that began after the export are not given out again.

A ledger that was not closed when it was exported may have had a writer since, which the export does not know, on bookies that
it does not name. So it comes back IN_RECOVERY, for no writer, and names every bookie of the cluster: its recovery asks all
of these before it closes the ledger (`daybook.core.recovery.elsewhere`).
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from daybook.core.errors import MetadataError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.metadata.backup.file import BackupFileError, ExportedNode, Header, open_export
from daybook.metadata.hold import begin_hold, begin_ids
from daybook.metadata.instance import make_once
from daybook.metadata.layout import Layout, join_id
from daybook.metadata.store.store import Create, MetadataStore, NoNodeError

BATCH_NODES: Final = 100
BATCH_BYTES: Final = 400_000
"""What one transaction writes: a server takes no request of more than 1 MiB."""

Report = Callable[[int, int | None], None]


class ClusterExistsError(MetadataError):
    """There is something where the metadata is to be imported to."""


@dataclass(slots=True)
class Export:
    """What a whole file has, without its nodes."""

    path: Path
    header: Header
    nodes: int = 0
    next_id: LedgerId = 0
    """Above the counter and every ledger."""
    bookies: list[BookieId] = field(default_factory=list)
    """Those with a cookie."""
    unclosed: int = 0
    """Ledgers that were not closed."""


def check_export(path: Path) -> Export:
    """Read the whole file. Raises BackupFileError if it is damaged, or no export of a cluster; MetadataError, OSError."""
    with open_export(path) as reader:
        found = Export(path, reader.header)
        instance = False
        for node in reader.nodes():
            found.nodes += 1
            instance = instance or node.path == _INSTANCE
            if node.path == _IDGEN:
                found.next_id = max(found.next_id, int(json.loads(node.data)["next"]))
            elif node.path.startswith(_COOKIES):
                found.bookies.append(node.path.removeprefix(_COOKIES))
            elif (ledger_id := _ledger_of(node)) is not None:
                found.next_id = max(found.next_id, ledger_id + 1)
                found.unclosed += not LedgerMetadata.from_json(node.data).is_closed
    if not instance:
        msg = f"{path} has no identity of a cluster: it is no export of a whole cluster"
        raise BackupFileError(msg)
    return found


async def import_nodes(
    store: MetadataStore,
    layout: Layout,
    export: Export,
    *,
    overwrite: bool,
    now_ms: int,
    report: Report = lambda _done, _total: None,
) -> None:
    """Write everything but the counter of ledger ids; `finish` creates that.

    With `overwrite` all metadata of a cluster that exists is deleted first. An import that was interrupted is repeated with it.
    Raises ClusterExistsError, BackupFileError, MetadataUnavailableError.
    """
    await _refuse_unless_empty(store, layout, overwrite=overwrite)
    await begin_hold(store, layout, now_ms=now_ms, exported_at_ms=export.header.exported_at_ms)
    if overwrite:
        await _delete_all(store, layout)
    made = {layout.root, *_ancestors(layout, layout.collection_hold)}
    for directory in layout.directories():
        await make_once(store, directory)
        made |= {directory, *_ancestors(layout, directory)}
    batch: list[Create] = []
    size_bytes = written = 0
    identity: Create | None = None
    with open_export(export.path) as reader:
        for node in reader.nodes():
            path = f"{layout.root}{node.path}"
            written += 1
            if path in made or path == layout.idgen:
                if path in made and node.data:
                    await store.put(path, node.data, None)
                continue
            create = Create(path, _restored(node, export.bookies))
            if path == layout.instance:
                identity = create
                continue
            if batch and (len(batch) >= BATCH_NODES or size_bytes + len(create.data) > BATCH_BYTES):
                await store.multi(batch)
                report(written, export.nodes)
                batch, size_bytes = [], 0
            batch.append(create)
            size_bytes += len(create.data)
    if batch:
        await store.multi(batch)
    assert identity is not None
    await store.create(identity.path, identity.data)


async def finish(store: MetadataStore, layout: Layout, export: Export, *, highest_held: LedgerId) -> LedgerId:
    """Create the counter of ledger ids, above all of the export and `highest_held`, the highest that a bookie holds; the next id.

    Ledgers begin again from here on.
    """
    next_id = max(export.next_id, highest_held + 1)
    await begin_ids(store, layout, next_id)
    return next_id


async def _refuse_unless_empty(store: MetadataStore, layout: Layout, *, overwrite: bool) -> None:
    if overwrite:
        return
    try:
        found = await store.children(layout.root)
    except NoNodeError:
        return
    if found:
        msg = (
            f"{layout.root} is not empty in this ZooKeeper (it has {', '.join(found[:5])}): to delete all metadata of cluster "
            f"{layout.cluster!r} that is there and to put that of the export in its place, give --overwrite"
        )
        raise ClusterExistsError(msg)


async def _delete_all(store: MetadataStore, layout: Layout) -> None:
    """Delete the identity first, so that no process begins to work on the rest, then all else that persists, but the hold."""
    for path in (layout.instance, layout.idgen):
        if await store.exists(path) is not None:
            await store.delete(path)
    await _delete_below(store, layout, layout.root)


async def _delete_below(store: MetadataStore, layout: Layout, path: str) -> bool:
    """Delete what is below `path`; whether nothing is left."""
    is_empty = True
    try:
        names = await store.children(path)
    except NoNodeError:
        return True
    for name in names:
        child = f"{path}/{name}"
        if child == layout.collection_hold or (child in layout.passing and child != layout.replacements):
            is_empty = False
        elif await _delete_below(store, layout, child):
            await store.delete(child)
        else:
            is_empty = False
    return is_empty


def _ancestors(layout: Layout, path: str) -> Iterator[str]:
    """The nodes between the cluster's own and `path`, from above."""
    names = path.removeprefix(f"{layout.root}/").split("/")[:-1]
    for count in range(1, len(names) + 1):
        yield f"{layout.root}/{'/'.join(names[:count])}"


def _ledger_of(node: ExportedNode) -> LedgerId | None:
    if not node.path.startswith(_LEDGERS):
        return None
    try:
        return join_id(node.path.removeprefix(_LEDGERS))
    except ValueError:
        return None  # a directory


def _restored(node: ExportedNode, bookies: list[BookieId]) -> bytes:
    """The data to write."""
    if _ledger_of(node) is None:
        return node.data
    metadata = LedgerMetadata.from_json(node.data)
    if metadata.is_closed:
        return node.data
    among = sorted({*metadata.restored_among, *bookies})  # an export of a cluster that was itself restored
    return replace(metadata.in_recovery(), restored_among=tuple(among)).to_json()


_ANY: Final = Layout("any")
_INSTANCE, _IDGEN, _COOKIES, _LEDGERS = (
    path.removeprefix(_ANY.root)
    for path in (_ANY.instance, _ANY.idgen, f"{_ANY.cookies}/", f"{_ANY.ledgers}/")
)
"""As an export has them: relative to the cluster's own node."""
