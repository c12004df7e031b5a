"""The reconcile of a pool: observe, plan, perform.

What cannot be carried out (an object or a change that the API server refuses, a bookie that does not answer) is reported
in the status and holds up nothing else: the plan is made again without it.
"""

from dataclasses import replace
from typing import Final

from daybook.runtime.logs import get_logger
from daybook_operator.kube.api import (
    REFUSALS,
    ConflictError,
    NotFoundError,
    NotNowError,
    Object,
    UnavailableError,
)
from daybook_operator.kube.queue import Key
from daybook_operator.plan.decision import sooner
from daybook_operator.plan.effects import Apply, Effect, PatchMeta
from daybook_operator.plan.pool.decide import audit_wanted_since_ms, decide, something_waits_for_audit
from daybook_operator.plan.pool.observed import ObservedPool
from daybook_operator.plan.pool.parts import Part, part_of
from daybook_operator.reconcile.performer import EffectError
from daybook_operator.reconcile.pool_observer import PoolObserver
from daybook_operator.reconcile.services import Services

_LOG: Final = get_logger(__name__)
_AGAIN_S: Final = 10.0
_ROUNDING_MS: Final = 999
"""The status has the beginning of an audit in whole seconds, rounded down."""


class PoolReconciler:
    """Reconciles "BookiePool" keys."""

    def __init__(self, services: Services) -> None:
        """Nothing is read yet."""
        self._services = services
        self._observer = PoolObserver(services)

    async def reconcile(self, key: Key) -> float | None:
        """Observe the pool and carry out its plan; see `queue.Reconcile`. Raises KubeError, EffectError."""
        manifest: Object | None = await self._services.kube.find(key.kind, key.namespace, key.name)
        status = (manifest or {}).get("status") or {}
        self._services.metrics.conditions_of(f"{key.namespace}/{key.name}", status.get("conditions") or ())
        if manifest is None:
            self._services.inventory.remove_pool(key.namespace, key.name)
            return None
        seen = await self._observer.observe(manifest)
        if seen.cluster_ref.zookeeper:
            self._services.inventory.add_pool(key.namespace, key.name, seen.cluster_ref)
        self._want_audit(seen)
        return await self._carry_out(key, seen)

    async def _carry_out(self, key: Key, seen: ObservedPool) -> float | None:
        """Carry out the plan, except what cannot be done. Raises what was refused, so that the next attempt comes after a pause."""
        done: list[Effect] = []
        refusal: EffectError | None = None
        while True:
            decision = decide(seen, self._services.now_ms())
            effects = [effect for effect in decision.effects if effect not in done]
            try:
                await self._services.performer.perform_all(effects)
            except EffectError as error:
                less = without_what_failed(seen, error)
                if less is None:
                    raise
                _LOG.warning("a part of the plan failed", pool=str(key), why=str(error))
                done += effects[: effects.index(error.effect)]
                is_told = part_of(error.effect, seen.drain) is Part.DRAIN or isinstance(
                    error.cause, NotNowError
                )
                refusal = refusal if is_told else error
                seen = less
                continue
            if refusal is not None:
                raise refusal
            is_slow = Part.DRAIN in seen.failed
            return sooner(decision.requeue_after_s, _AGAIN_S) if is_slow else decision.requeue_after_s

    def _want_audit(self, seen: ObservedPool) -> None:
        link = self._services.clusters.find(seen.cluster_ref)
        since_ms = audit_wanted_since_ms(seen, self._services.now_ms())
        if link is not None and since_ms is not None:
            link.audits.want_full_audit(
                after_ms=since_ms + _ROUNDING_MS, is_waited_for=something_waits_for_audit(seen)
            )


def without_what_failed(seen: ObservedPool, error: EffectError) -> ObservedPool | None:
    """`seen` with the fact that the effect failed; None: observe and plan again."""
    effect, cause = error.effect, error.cause
    if isinstance(cause, UnavailableError):
        return None  # nor could the status be written
    if isinstance(effect, Apply):
        what = (effect.manifest["kind"], effect.manifest["metadata"]["name"])
        if what in seen.refused or not isinstance(cause, REFUSALS):
            return None
        return replace(seen, refused={**seen.refused, what: str(cause)})
    if isinstance(cause, NotNowError):
        return None if seen.not_now else replace(seen, not_now=str(cause))
    part = part_of(effect, seen.drain)
    is_outdated = isinstance(effect, PatchMeta) and isinstance(cause, ConflictError | NotFoundError)
    if part is None or part in seen.failed or is_outdated:
        return None
    return replace(seen, failed={**seen.failed, part: str(cause)})
