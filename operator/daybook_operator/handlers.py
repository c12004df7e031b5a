"""Events: each becomes the keys of what is to be looked at, and nothing else. `watches` brings them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from daybook_operator.kube.queue import BOOKIE_POOL, LEDGER, Key
from daybook_operator.plan.names import POOL_LABEL
from daybook_operator.reconcile.inventory import Inventory, keys_of_pool


@dataclass(frozen=True, slots=True)
class Seen:
    """What is kept of an event."""

    kind: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    pool: str = ""
    """The pool that a Ledger is for."""
    version: str = ""
    """Of a pool: changes with whatever its Ledgers depend on, and not with the rest of its status."""
    deleted: bool = False


def seen_from(kind: str, event_type: str | None, body: Mapping[str, Any]) -> Seen:
    """An event's object, as far as keys depend on it."""
    meta = body["metadata"]
    spec = body.get("spec") or {}
    known = (body.get("status") or {}).get("metadata")
    facts = (meta.get("uid"), meta.get("generation"), bool(meta.get("deletionTimestamp")), known)
    return Seen(
        kind,
        meta.get("namespace") or "",
        meta["name"],
        dict(meta.get("labels") or {}),
        (spec.get("poolRef") or {}).get("name", "") if kind == LEDGER else "",
        json.dumps(facts, sort_keys=True) if kind == BOOKIE_POOL else "",
        event_type == "DELETED",
    )


class Router:
    """Events → keys. On the operator's own loop."""

    def __init__(self, inventory: Inventory) -> None:
        """`inventory` is kept up to date about what is there."""
        self._inventory = inventory
        self._nodes: dict[str, Mapping[str, str]] = {}
        self._pools: dict[tuple[str, str], str] = {}

    def keys(self, seen: Seen) -> list[Key]:
        """What to look at because of this event."""
        if seen.kind == BOOKIE_POOL:
            return self._about_pool(seen)
        if seen.kind == LEDGER:
            if not seen.deleted:
                self._inventory.add_ledger(seen.namespace, seen.name, seen.pool)
            return [Key(LEDGER, seen.namespace, seen.name)]
        if seen.kind == "Node":
            return self._about_node(seen)
        pool = seen.labels.get(POOL_LABEL)
        if not pool:
            return []
        keys = keys_of_pool(seen.namespace, pool)
        return list(keys) if seen.kind == "Job" else [keys[0]]

    def _about_pool(self, seen: Seen) -> list[Key]:
        """A pool writes its status at every step; its Ledgers, of which there may be thousands, wait for other news."""
        before = self._pools.pop((seen.namespace, seen.name), None)
        if seen.deleted:
            self._inventory.remove_pool(seen.namespace, seen.name)
        else:
            self._inventory.add_pool(seen.namespace, seen.name)
            self._pools[seen.namespace, seen.name] = seen.version
        keys = list(keys_of_pool(seen.namespace, seen.name))
        if seen.deleted or before != seen.version:
            keys += self._inventory.ledgers_of_pool(seen.namespace, seen.name)
        return keys

    def _about_node(self, seen: Seen) -> list[Key]:
        """Nodes tell of themselves all the time; only their labels, and that they are there, matter."""
        before = self._nodes.get(seen.name)
        if seen.deleted:
            self._nodes.pop(seen.name, None)
        elif before == seen.labels:
            return []
        else:
            self._nodes[seen.name] = seen.labels
        return self._inventory.pools()
