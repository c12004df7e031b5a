"""One look at a pool: observe, plan, perform.

A drain whose step fails (a bookie that does not answer), or an object that the API server refuses, is told in the status
and holds up nothing else: the plan is made again without it.
"""

from dataclasses import replace
from typing import Final

from daybook.runtime.logs import get_logger
from daybook_operator.kube import ConflictError, ForbiddenError, InvalidError, Object
from daybook_operator.plan.decision import sooner
from daybook_operator.plan.effects import Apply, DeleteCookie, Effect, MarkLeaving, SetReadOnly, UnmarkLeaving
from daybook_operator.plan.pool_decide import audit_wanted_since_ms, decide
from daybook_operator.plan.pool_world import PoolWorld
from daybook_operator.queue import Key
from daybook_operator.reconcile.performer import EffectError
from daybook_operator.reconcile.pool_observe import PoolObserver
from daybook_operator.reconcile.world import World

_LOG: Final = get_logger(__name__)
_OF_A_DRAIN: Final = (SetReadOnly, MarkLeaving, UnmarkLeaving, DeleteCookie)
_REFUSALS: Final = (ConflictError, ForbiddenError, InvalidError)
_AGAIN_S: Final = 10.0
_ROUNDING_MS: Final = 1_000
"""The status tells in whole seconds when an audit began, rounded down."""


class PoolReconciler:
    """Looks at pools, one call for each look."""

    def __init__(self, world: World) -> None:
        """Nothing is read yet."""
        self._world = world
        self._observer = PoolObserver(world)

    async def reconcile(self, key: Key) -> float | None:
        """Look at the pool, and do what is to be done; when to look again. Raises KubeError, EffectError."""
        manifest: Object | None = await self._world.kube.find(key.kind, key.namespace, key.name)
        if manifest is None:
            self._world.inventory.remove_pool(key.namespace, key.name)
            return None
        seen = await self._observer.observe(manifest)
        if seen.cluster_ref.zookeeper:
            self._world.inventory.add_pool(key.namespace, key.name, seen.cluster_ref)
        self._want_audit(seen)
        return await self._carry_out(key, seen)

    async def _carry_out(self, key: Key, seen: PoolWorld) -> float | None:
        """Have the plan carried out, all but what cannot be done. Raises what was refused, for a pause that grows."""
        done: list[Effect] = []
        drain_failure = ""
        refusal: EffectError | None = None
        while True:
            decision = decide(seen, self._world.now_ms(), drain_failure=drain_failure)
            effects = [effect for effect in decision.effects if effect not in done]
            try:
                await self._world.performer.perform_all(effects)
            except EffectError as error:
                done += effects[: effects.index(error.effect)]
                if isinstance(error.effect, Apply) and isinstance(error.cause, _REFUSALS):
                    seen = _without(seen, error.effect, str(error.cause))
                    refusal = error
                elif isinstance(error.effect, _OF_A_DRAIN) and not drain_failure:
                    _LOG.warning("a step of a drain failed", pool=str(key), why=str(error))
                    drain_failure = str(error.cause)
                else:
                    raise
                continue
            if refusal is not None:
                raise refusal
            return sooner(decision.requeue_after_s, _AGAIN_S) if drain_failure else decision.requeue_after_s

    def _want_audit(self, seen: PoolWorld) -> None:
        link = self._world.clusters.find(seen.cluster_ref)
        since_ms = audit_wanted_since_ms(seen, self._world.now_ms())
        if link is not None and since_ms is not None:
            link.want_full_audit(after_ms=since_ms + _ROUNDING_MS)


def _without(seen: PoolWorld, effect: Apply, why: str) -> PoolWorld:
    """`seen` with the knowledge that the object is refused."""
    what = (effect.manifest["kind"], effect.manifest["metadata"]["name"])
    return replace(seen, refused={**seen.refused, what: why})
