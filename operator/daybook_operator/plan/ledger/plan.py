"""The plan for a Ledger resource: create its ledger once, mirror it, seal it, and release it when the resource is deleted.

The ledger is bound to the resource's UID in the transaction that creates it, so that a reconcile that was interrupted
finds it again and creates no second one. Its ensemble is drawn from the pool's bookies by rack and zone, as a function of
that UID, so that a plan that is made twice draws the same.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from daybook.core.errors import NotEnoughBookiesError
from daybook.core.ids import LedgerId
from daybook.core.ledger.metadata import POOL_KEY, password_key
from daybook.core.placement.policies import make_policy
from daybook.core.quorum import Quorum
from daybook_operator.plan.conditions import Condition, wrong
from daybook_operator.plan.decision import Decision, is_paused, is_terminating, paused, sooner
from daybook_operator.plan.draws import Draws
from daybook_operator.plan.effects import (
    AdoptLedger,
    CreateLedger,
    DeleteLedger,
    Effect,
    EventType,
    ForgetRequest,
    Report,
    SealLedger,
)
from daybook_operator.plan.ledger.observed import LedgerInCluster, ObservedLedger
from daybook_operator.plan.ledger.status import MESSAGE_ORDER, conditions_of, mirror
from daybook_operator.plan.names import FINALIZER
from daybook_operator.plan.stored import (
    CONFLICT,
    READY,
    SOON_S,
    UNAVAILABLE_S,
    WAITING_S,
    claim,
    effect_failed,
    finish_stored,
    kept,
    release,
    unhold,
    why_no_cluster,
)

AUDIT_S: Final = 5.0
RESOURCE_KEY: Final = "daybook.dev/resource"
"""In the ledger's custom metadata: which resource it was created for."""


def decide(observed: ObservedLedger, now_ms: int) -> Decision:
    """What to do about the resource now."""
    if is_terminating(observed.manifest):
        return _release(observed, now_ms)
    if is_paused(observed.manifest):
        return paused(observed.ref, observed.manifest, now_ms)
    if observed.failure is not None:
        return _report_failure(observed, now_ms)
    if (unheld := unhold(observed)) is not None:
        return unheld
    seen = observed.cluster
    if observed.cluster_ref is None or (seen is None and observed.cluster_ref is not None):
        return _wait(observed, now_ms)
    assert seen is not None
    claimed = claim(observed)
    if seen.ledger_id is None:
        return _create(observed, seen, claimed, now_ms)
    if seen.metadata is None:
        return _gone(observed, now_ms)
    if seen.holder:
        return _conflict(observed, seen.metadata.value.ledger_id, seen.holder, now_ms)
    return _mirror_and_seal(observed, seen, claimed, now_ms)


# Before it is there.


def _wait(observed: ObservedLedger, now_ms: int) -> Decision:
    condition = why_no_cluster(observed, "Writers that are attached continue meanwhile")
    return _finish(observed, (), _kept(observed), [condition], now_ms, UNAVAILABLE_S)


def _create(
    observed: ObservedLedger, seen: LedgerInCluster, claimed: tuple[Effect, ...], now_ms: int
) -> Decision:
    assert observed.cluster_ref is not None
    if observed.pool is None:
        return _wait(replace(observed, cluster_ref=None), now_ms)
    if observed.password is None:
        return _wait_for_password(observed, claimed, now_ms)
    spec = observed.spec
    if spec.ledger_id is not None:
        return _adopt(observed, seen, spec.ledger_id, observed.password, claimed, now_ms)
    quorum = Quorum(spec.ensemble_size, spec.write_quorum, spec.ack_quorum)
    candidates = {bookie: info for bookie, info in seen.bookies.items() if observed.is_of_pool(bookie)}
    candidates = {bookie: info for bookie, info in candidates.items() if bookie in seen.registered}
    try:
        ensemble = make_policy(observed.placement).choose(quorum, candidates, Draws(observed.uid))
    except NotEnoughBookiesError as error:
        condition = wrong(
            READY,
            "NotEnoughBookies",
            f"No ensemble can be chosen from BookiePool {observed.pool_name}: {error}",
            next_step="The ledger is created as soon as there is one.",
        )
        return _finish(observed, claimed, {"state": "Pending"}, [condition], now_ms, WAITING_S)
    meta = observed.manifest["metadata"]
    custom = {name: text.encode() for name, text in sorted(spec.custom_metadata.items())}
    custom[RESOURCE_KEY] = f"{meta['namespace']}/{meta['name']}".encode()
    custom[POOL_KEY] = observed.pool_in_cluster.encode()
    create = CreateLedger(
        observed.cluster_ref,
        observed.uid,
        ensemble,
        quorum.write_quorum,
        quorum.ack_quorum,
        custom,
        observed.password,
    )
    event = Report(observed.ref, EventType.NORMAL, "Creating", f"Creating a ledger on {', '.join(ensemble)}")
    return Decision((*claimed, event, create), SOON_S)  # the next reconcile finds it and says so


def _adopt(
    observed: ObservedLedger,
    seen: LedgerInCluster,
    ledger_id: LedgerId,
    password: bytes,
    claimed: tuple[Effect, ...],
    now_ms: int,
) -> Decision:
    """Bind an existing ledger. Its password is required: this resource may have it sealed and deleted."""
    assert observed.cluster_ref is not None
    adoptee = seen.adoptee
    if adoptee is None:
        condition = wrong(
            READY,
            "LedgerNotFound",
            f"There is no ledger {ledger_id} in cluster {observed.cluster_ref}",
            next_step="Create another Ledger with the id of an existing one (`daybook ledger list`).",
        )
        return _finish(observed, claimed, {"state": "Pending"}, [condition], now_ms, WAITING_S)
    if password_key(password, adoptee.value.password_hash) != adoptee.value.password_hash:
        condition = wrong(
            READY,
            "WrongPassword",
            f"The password is not that of ledger {ledger_id}",
            next_step="Create another Ledger whose passwordSecretRef names a Secret with it.",
        )
        return _finish(observed, claimed, {"state": "Pending"}, [condition], now_ms, WAITING_S)
    if seen.holder:
        return _conflict(observed, ledger_id, seen.holder, now_ms)
    event = Report(
        observed.ref, EventType.NORMAL, "Adopting", f"Ledger {ledger_id} is bound to this resource"
    )
    return Decision((*claimed, event, AdoptLedger(observed.cluster_ref, observed.uid, adoptee)), SOON_S)


def _conflict(observed: ObservedLedger, ledger_id: LedgerId, holder: str, now_ms: int) -> Decision:
    """Another resource has the ledger: this one must neither seal nor delete what that one keeps."""
    condition = wrong(
        READY,
        CONFLICT,
        f"Ledger {ledger_id} is that of the Ledger {holder}, and a ledger has one resource",
        next_step="Delete one of the two resources; if it is the other one, this one adopts what it leaves.",
    )
    return _finish(observed, (), {"state": "Pending"}, [condition], now_ms, WAITING_S)


def _wait_for_password(observed: ObservedLedger, claimed: tuple[Effect, ...], now_ms: int) -> Decision:
    ref = observed.spec.password_secret_ref
    assert ref is not None, "without one the password is empty"
    condition = wrong(
        READY,
        "PasswordNotReadable",
        f"The ledger's password cannot be read: {observed.password_error}",
        next_step=f"Create Secret {ref.name} with that key, and let the operator read it (the chart's "
        "operator.passwordSecrets); the ledger is created then.",
    )
    return _finish(observed, claimed, {"state": "Pending"}, [condition], now_ms, WAITING_S)


# While it is there.


def _mirror_and_seal(
    observed: ObservedLedger, seen: LedgerInCluster, claimed: tuple[Effect, ...], now_ms: int
) -> Decision:
    assert seen.metadata is not None
    assert observed.cluster_ref is not None
    metadata = seen.metadata.value
    if observed.spec.seal and not metadata.is_closed:
        event = Report(
            observed.ref, EventType.NORMAL, "Sealing", f"Closing ledger {metadata.ledger_id} for good"
        )
        return Decision((*claimed, event, SealLedger(observed.cluster_ref, metadata.ledger_id)), SOON_S)
    again_s = None if seen.audited else AUDIT_S
    return _finish(observed, claimed, mirror(observed, seen), conditions_of(observed, seen), now_ms, again_s)


def _gone(observed: ObservedLedger, now_ms: int) -> Decision:
    assert observed.cluster is not None
    condition = wrong(
        READY,
        "LedgerGone",
        f"Ledger {observed.cluster.ledger_id} was deleted in ZooKeeper, not by this resource",
        next_step="Delete this Ledger; create another if one is needed.",
    )
    return _finish(observed, (), _kept(observed), [condition], now_ms)


def _report_failure(observed: ObservedLedger, now_ms: int) -> Decision:
    """An effect of the plan failed: report it; the operator tries again after a pause."""
    failure, seen = observed.failure, observed.cluster
    assert failure is not None
    if seen is not None and seen.metadata is not None and failure.effect == "SealLedger":
        return _finish(observed, (), mirror(observed, seen), conditions_of(observed, seen), now_ms)
    return _finish(observed, (), _kept(observed), [effect_failed(failure)], now_ms)


# When the resource goes.


def _release(observed: ObservedLedger, now_ms: int) -> Decision:
    return release(
        observed,
        now_ms,
        reclaim=lambda: _reclaim(observed),
        pending=lambda again_s: _deletion_is_pending(observed, now_ms, again_s),
        left_behind=lambda: _left_behind(observed),
    )


def _reclaim(observed: ObservedLedger) -> tuple[Effect, ...]:
    """What the reclaim policy asks for; then nothing binds the ledger to the resource any more."""
    seen = observed.cluster
    if seen is None or seen.ledger_id is None or observed.cluster_ref is None:
        return ()
    forget = ForgetRequest(observed.cluster_ref, observed.uid)
    if seen.holder:
        event = Report(
            observed.ref,
            EventType.NORMAL,
            "Retained",
            f"Ledger {seen.ledger_id} stays: it is that of the Ledger {seen.holder}",
        )
        return (forget, event)
    if observed.spec.reclaim_policy == "Delete":
        event = Report(observed.ref, EventType.NORMAL, "Deleted", f"Ledger {seen.ledger_id} is deleted")
        return (DeleteLedger(observed.cluster_ref, seen.ledger_id), forget, event)
    event = Report(
        observed.ref,
        EventType.NORMAL,
        "Retained",
        f"Ledger {seen.ledger_id} stays in cluster {observed.cluster_ref}, by reclaimPolicy Retain",
    )
    return (forget, event)


def _deletion_is_pending(observed: ObservedLedger, now_ms: int, again_s: float | None) -> Decision:
    why = observed.failure.message if observed.failure is not None else observed.cluster_error
    condition = wrong(
        READY,
        "DeletionWaits",
        f"The ledger cannot be deleted or released yet: {why or 'ZooKeeper does not answer'}",
        next_step="The operator tries again; if ZooKeeper is gone for good, remove the finalizer "
        f"{FINALIZER} from this Ledger by hand.",
    )
    status = {**_kept(observed), "state": "Deleting"}
    return _finish(observed, (), status, [condition], now_ms, sooner(again_s, UNAVAILABLE_S))


def _left_behind(observed: ObservedLedger) -> str:
    known = observed.status.get("ledgerId")
    where = observed.cluster_ref or "its cluster"
    what = f"Ledger {known}" if known is not None else "A ledger that may have been created"
    return (
        f"{what} and its request {observed.uid} are left behind in {where}, because "
        f"{observed.finalizers.why_released('they could not be removed')}: delete the ledger with `daybook ledger delete`"
    )


# Together.


def _kept(observed: ObservedLedger) -> dict[str, Any]:
    return kept(observed) or {"state": "Pending"}


def _finish(
    observed: ObservedLedger,
    effects: Iterable[Effect],
    status: dict[str, Any],
    conditions: list[Condition],
    now_ms: int,
    requeue_after_s: float | None = None,
) -> Decision:
    return finish_stored(observed, effects, status, conditions, now_ms, requeue_after_s, order=MESSAGE_ORDER)
