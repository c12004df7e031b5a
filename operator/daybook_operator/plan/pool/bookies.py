"""What the status says about each bookie: its state in one word, its place and volumes, and why it does not serve."""

from collections.abc import Mapping
from typing import Any, Final

from daybook.core.ids import BookieId
from daybook_operator.plan.conditions import iso
from daybook_operator.plan.pool.drain import Draining
from daybook_operator.plan.pool.observed import ObservedPod, ObservedPool
from daybook_operator.plan.pool.topology import Placing

_WORDS_MAX: Final = 400


def bookie_records(
    pool: ObservedPool, placing: Placing, draining: Draining, why_down: Mapping[BookieId, str], now_ms: int
) -> list[dict[str, Any]]:
    """Each bookie, by ordinal; `since` changes with the state alone."""
    before = {each["id"]: each for each in pool.status.get("bookies", ())}
    records = []
    stopped = range(pool.present_replicas) if pool.is_stopping else ()
    for ordinal in sorted({*pool.expected, *pool.pods, *stopped}):
        bookie, pod, place = pool.bookie(ordinal), pool.pods.get(ordinal), placing.places.get(ordinal)
        info = pool.cluster.bookies.get(bookie) if pool.cluster else None
        state = state_of(pool, ordinal, draining, why_down)
        old = before.get(bookie, {})
        record: dict[str, Any] = {
            "id": bookie,
            "ordinal": ordinal,
            "pod": pod.name if pod else None,
            "node": (pod.node or None) if pod else None,
            "region": (place.region or None) if place else None,
            "zone": (place.zone or None) if place else None,
            "rack": place.rack if place else None,
            "state": state,
            "ready": bool(pod and pod.ready and not pod.terminating),
            "image": (pod.image or None) if pod else None,
            "since": old.get("since") if old.get("state") == state else iso(now_ms),
            "message": None
            if pool.serves(ordinal) or pool.is_stopping
            else why_away(pool, ordinal, why_down),
        }
        if info is not None and info.capacity_bytes:
            record["capacityBytes"] = info.capacity_bytes
            record["usedBytes"] = info.capacity_bytes - info.free_bytes
        if pool.cluster is not None and pool.cluster.survey.is_whole:
            record["ledgers"] = pool.cluster.survey.ledgers_of.get(bookie, 0)
        records.append(record)
    return records


def state_of(pool: ObservedPool, ordinal: int, draining: Draining, why_down: Mapping[BookieId, str]) -> str:
    """One word for a bookie."""
    bookie, pod = pool.bookie(ordinal), pool.pods.get(ordinal)
    if draining.drain is not None and draining.drain.bookie == bookie:
        return "Draining"
    if pool.is_stopping:
        return "Stopped"
    if pool.cluster is not None:
        info = pool.cluster.bookies.get(bookie)
        if info is not None:
            return "Writable" if info.writable else "ReadOnly"
        if bookie in why_down:
            return "DiskLost"
        if bookie in pool.cluster.lost:
            return "Lost"
        if bookie in pool.cluster.cookies and not _starts(pod):
            return "Away"
        return "Starting"
    return "Away" if pool.is_down(ordinal) else "Unknown"


def why_away(pool: ObservedPool, ordinal: int, why_down: Mapping[BookieId, str]) -> str:
    """Why a bookie does not serve."""
    pod = pool.pods.get(ordinal)
    if (reason := why_down.get(pool.bookie(ordinal))) is not None:
        return reason
    if pod is None:
        return "its pod does not exist yet"
    if pod.terminating:
        return "its pod is terminating"
    if not pod.node:
        return f"its pod is not scheduled: {pod.waits_for or 'it waits for a node'}"
    if pod.exit_code is not None:
        return f"it ended with exit code {pod.exit_code}: {pod.last_words[-_WORDS_MAX:] or pod.waits_for or 'without a message'}"
    if pool.cluster is None:
        return "whether it is registered is not known while ZooKeeper does not answer"
    if not pool.is_registered(ordinal):
        if pool.bookie(ordinal) not in pool.cluster.locations:
            return "it waits until the topology in ZooKeeper has its location"
        return pod.waits_for or "it starts, or replays its journal"
    return "it is registered, and its pod is not ready yet"


def _starts(pod: ObservedPod | None) -> bool:
    return pod is not None and bool(pod.node) and not pod.terminating and pod.exit_code is None
