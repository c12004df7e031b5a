"""Carries out effects: the one place that writes, to the API server, to ZooKeeper and to bookies.

Effects are done in order, up to the first that fails; the next reconcile starts from what is true then. Nothing here
decides: a plan decided from what was observed, and where that may have changed meanwhile, versions, UIDs and the
cluster's own rules refuse the effect.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Final

from daybook.autorecovery.decommission import Decommission, NotDrainedError
from daybook.core.errors import DaybookError, MetadataError, NoSuchLedgerError
from daybook.core.ledger.metadata import Fragment, LedgerMetadata, check_custom_metadata, hash_password
from daybook.core.quorum import check_quorum
from daybook.core.repair.task import is_harmless, leaving_reason
from daybook.metadata.store.store import BadVersionError
from daybook.metadata.tree import list_directory
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook_operator.clusters.clusters import Clusters
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.kube.api import (
    ConflictError,
    ForbiddenError,
    Kube,
    KubeError,
    NotFoundError,
    NotNowError,
    Object,
)
from daybook_operator.metrics import OperatorMetrics
from daybook_operator.plan.conditions import iso
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import (
    AdoptLedger,
    Apply,
    AuthoriseReplacement,
    CreateLedger,
    CreateTopic,
    DeleteCookie,
    DeleteLedger,
    DeleteTopic,
    Effect,
    Evict,
    ForgetRequest,
    MarkLeaving,
    PatchMeta,
    Ref,
    Remove,
    Report,
    SealLedger,
    SetLocations,
    SetLostBookieDelay,
    SetPartitions,
    SetReadOnly,
    SetStatus,
    SetTopicPolicy,
    UnmarkLeaving,
)
from daybook_operator.plan.names import FIELD_MANAGER
from daybook_operator.plan.pool.other_pools import ClusterNow, why_not_now
from daybook_operator.reconcile.brokers import BrokerAccess
from daybook_operator.reconcile.cluster_pods import pods_of
from daybook_operator.reconcile.topic_changes import change_topic

_LOG: Final = get_logger(__name__)
_DELETE_ATTEMPTS: Final = 10
_EVENT_MESSAGE_MAX: Final = 1024


class EffectError(DaybookError):
    """An effect failed; those after it were not tried. `effect` is the one, `__cause__` the reason."""

    def __init__(self, effect: Effect, cause: DaybookError) -> None:
        """`cause` says what happened and what to do."""
        super().__init__(f"{type(effect).__name__}: {cause}")
        self.effect = effect
        self.cause = cause


class Performer:
    """Carries out effects."""

    def __init__(
        self,
        kube: Kube,
        clusters: Clusters,
        metrics: OperatorMetrics,
        identity: str,
        now_ms: Callable[[], int] = unix_ms,
        namespaces: Callable[[], Collection[str]] = tuple,
        brokers: BrokerAccess | None = None,
    ) -> None:
        """`identity` is named in events; `now_ms` is the wall clock; `namespaces` are those that have pools."""
        self.brokers = brokers or BrokerAccess()
        self._kube = kube
        self._clusters = clusters
        self._metrics = metrics
        self._identity = identity
        self._now_ms = now_ms
        self._namespaces = namespaces
        self._one_at_a_time = asyncio.Lock()

    async def carry_out(self, decision: Decision) -> float | None:
        """Perform the effects of `decision` in order; return after how many seconds to reconcile again. Raises EffectError."""
        await self.perform_all(decision.effects)
        return decision.requeue_after_s

    async def perform_all(self, effects: Iterable[Effect]) -> None:
        """Perform the effects in order. Raises EffectError at the first that fails."""
        for effect in effects:
            name = type(effect).__name__
            try:
                await self.perform(effect)
            except DaybookError as error:
                self._metrics.effects.labels(name, "error").inc()
                raise EffectError(effect, error) from error
            self._metrics.effects.labels(name, "ok").inc()
            if not isinstance(effect, SetStatus):
                _LOG.info("performed", effect=name, what=_what(effect))

    async def perform(self, effect: Effect) -> None:
        """One effect. Raises DaybookError."""
        match effect:
            case Apply() | Remove() | SetStatus() | PatchMeta() | Report():
                await self._in_kubernetes(effect)
            case Evict():
                await self._evict(effect)
            case CreateLedger() | AdoptLedger() | SealLedger() | DeleteLedger() | ForgetRequest():
                await self._about_a_ledger(effect)
            case CreateTopic() | SetTopicPolicy() | SetPartitions() | DeleteTopic():
                await change_topic(effect, await self._clusters.link(effect.cluster), self.brokers)
            case _:
                await self._about_a_bookie(effect)

    async def _evict(self, effect: Evict) -> None:
        """Evict a pod, if the whole cluster allows it at this moment. One at a time, so that no two rely on the same facts."""
        async with self._one_at_a_time:
            link = await self._clusters.link(effect.cluster)
            await link.client.store.sync(link.client.layout.root)
            bookies = await link.client.directory.bookies()
            tasks = await link.task_list.read(fresh=True)
            now = ClusterNow(
                bookies,
                await pods_of(self._kube, effect.boots, self._namespaces()),
                tuple(task.value.ledger_id for task in tasks if not is_harmless(task.value.reasons)),
            )
            if why_not := why_not_now(effect, now):
                msg = f"{effect.bookie} stays for now: {why_not}"
                raise NotNowError(msg)
            await self._kube.evict(effect.ref)

    # Kubernetes.

    async def _in_kubernetes(self, effect: Apply | Remove | SetStatus | PatchMeta | Report) -> None:
        match effect:
            case Apply(manifest):
                await self._kube.apply(manifest)
            case Remove(ref, propagation):
                await self._kube.remove(ref, propagation)
            case SetStatus(ref, status):
                await self._set_status(ref, status)
            case PatchMeta():
                await self._patch_meta(effect)
            case Report():
                await self._report(effect)

    async def _set_status(self, ref: Ref, status: Any) -> None:
        meta: Object = {"name": ref.name, "namespace": ref.namespace}
        if ref.uid:
            meta["uid"] = ref.uid
        manifest = {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": meta, "status": status}
        try:
            await self._kube.apply(manifest, subresource="status")
        except NotFoundError:
            _LOG.debug("the object of a status is gone", what=str(ref))

    async def _patch_meta(self, effect: PatchMeta) -> None:
        try:
            await self._kube.patch_meta(effect)
        except NotFoundError:
            if not effect.remove_finalizer:
                raise

    async def _report(self, effect: Report) -> None:
        """Create an event. A failure is only logged: it must not hold up what the event is about."""
        about = effect.ref
        try:
            try:
                await self._create_event(effect, about, about.namespace or "default")
            except (ForbiddenError, NotFoundError):
                if not about.namespace:
                    raise
                # A namespace that terminates takes no new events: the event is about the namespace instead.
                namespace = Ref("v1", "Namespace", "", about.namespace)
                await self._create_event(
                    replace(effect, message=f"{about}: {effect.message}"), namespace, "default"
                )
        except KubeError as error:
            _LOG.warning(
                "an event could not be created", about=str(about), message=effect.message, why=str(error)
            )

    async def _create_event(self, effect: Report, about: Ref, namespace: str) -> None:
        words = f"{about.uid} {effect.type} {effect.reason} {effect.message}"
        name = f"{about.name[:200]}.{hashlib.sha256(words.encode()).hexdigest()[:16]}"
        now = iso(self._now_ms())
        before = await self._kube.find("Event", namespace, name)
        if before is not None:
            count = int(before.get("count") or 1) + 1
            await self._kube.merge(
                Ref("v1", "Event", namespace, name), {"count": count, "lastTimestamp": now}
            )
            return
        involved = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name}
        if about.namespace:
            involved["namespace"] = about.namespace
        if about.uid:
            involved["uid"] = about.uid
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved,
            "type": effect.type.value,
            "reason": effect.reason,
            "message": effect.message[:_EVENT_MESSAGE_MAX],
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": FIELD_MANAGER, "host": self._identity},
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": self._identity,
        }
        try:
            await self._kube.create(event)
        except ConflictError:
            return  # another reconcile created it at the same instant

    # Ledgers.

    async def _about_a_ledger(
        self, effect: CreateLedger | AdoptLedger | SealLedger | DeleteLedger | ForgetRequest
    ) -> None:
        link = await self._clusters.link(effect.cluster)
        match effect:
            case CreateLedger():
                await self._create_ledger(link, effect)
            case AdoptLedger(_, request_uid, ledger):
                await link.client.ledgers.adopt(request_uid, ledger)
            case SealLedger(_, ledger_id):
                found = await link.client.ledgers.read(ledger_id, sync=True)
                if not found.value.is_closed:
                    await link.client.recover(found.value)
            case DeleteLedger(_, ledger_id):
                await _delete_ledger(link, ledger_id)
            case ForgetRequest(_, request_uid):
                await link.client.ledgers.forget_request(request_uid)

    async def _create_ledger(self, link: ClusterLink, effect: CreateLedger) -> None:
        quorum = check_quorum(len(effect.ensemble), effect.write_quorum, effect.ack_quorum)
        custom = check_custom_metadata(effect.custom_metadata)
        stored_hash = hash_password(effect.password, secrets.token_bytes(16))
        created_at_ms = self._now_ms()
        await link.client.ledgers.create_ledger(
            lambda ledger_id: LedgerMetadata(
                ledger_id,
                quorum,
                (Fragment(0, 0, effect.ensemble),),
                password_hash=stored_hash,
                custom_metadata=custom,
                created_at_ms=created_at_ms,
            ),
            request_uid=effect.request_uid,
        )

    # Bookies.

    async def _about_a_bookie(
        self,
        effect: SetLocations
        | AuthoriseReplacement
        | SetReadOnly
        | MarkLeaving
        | UnmarkLeaving
        | DeleteCookie
        | SetLostBookieDelay,
    ) -> None:
        link = await self._clusters.link(effect.cluster)
        directory = link.client.directory
        match effect:
            case SetLocations(_, changes):
                await directory.set_locations(changes)
            case AuthoriseReplacement(_, bookie, by):
                async with self._one_at_a_time:
                    await _refuse_beside_another(link, bookie)
                    await directory.authorise_replacement(bookie, by=by, now_ms=self._now_ms())
            case SetReadOnly(_, bookie, read_only):
                await Decommission(link.client, bookie).set_read_only(read_only=read_only)
            case MarkLeaving(_, bookie, ledgers):
                for ledger_id in ledgers:
                    await link.tasks.mark(
                        ledger_id, reasons=[leaving_reason(bookie)], bookies=[bookie], now_ms=self._now_ms()
                    )
            case UnmarkLeaving(_, bookie):
                await Decommission(link.client, bookie).unmark()
            case DeleteCookie(_, bookie):
                await _delete_cookie(link, bookie)
            case SetLostBookieDelay(_, delay_s):
                await link.tasks.set_lost_bookie_delay_s(delay_s)


async def _refuse_beside_another(link: ClusterLink, bookie: str) -> None:
    """Two pools may have found a lost disk at one time (rule 29). Raises MetadataError.

    A replacement of a bookie without a cookie does not count: the bookie was forgotten since, and owes nothing.
    """
    layout = link.client.layout
    await link.client.store.sync(layout.replacements)
    authorised = set(await list_directory(link.client.store, layout.replacements))
    others = authorised & set(await link.client.directory.cookies()) - {bookie}
    if others:
        msg = f"the replacement of {min(others)} is authorised already, and bookies are replaced one after the other"
        raise MetadataError(msg)


async def _delete_ledger(link: ClusterLink, ledger_id: int) -> None:
    """Delete a ledger without its password: whoever may write metadata may delete (rule 20, rule 56)."""
    for _ in range(_DELETE_ATTEMPTS):
        try:
            found = await link.client.ledgers.read(ledger_id, sync=True)
            if not found.value.is_closed:
                await link.client.recover(found.value)  # its writer must notice
                continue
            await link.client.ledgers.delete(ledger_id, found.version)
        except NoSuchLedgerError:
            return
        except BadVersionError:
            continue
        return
    msg = f"ledger {ledger_id} changed {_DELETE_ATTEMPTS} times while it was being deleted: the operator tries again"
    raise MetadataError(msg)


async def _delete_cookie(link: ClusterLink, bookie: str) -> None:
    """Forget a bookie, unless it is writable or a ledger names it in a listing of this moment (rule 29)."""
    cookie = await link.client.directory.cookie(bookie)
    info = (await link.client.directory.bookies()).get(bookie)
    if info is not None and info.writable:
        msg = f"bookie {bookie} is writable again, since it was restarted: it is made read-only first"
        raise NotDrainedError(msg)
    if left := await Decommission(link.client, bookie).naming():
        msg = f"{len(left)} ledgers name bookie {bookie}, for example ledger {left[0]}: its cookie stays until they are copied"
        raise NotDrainedError(msg)
    if cookie is not None:
        await link.client.directory.delete_cookie(bookie, cookie.version)


def _what(effect: Effect) -> str:
    """A few words for the log."""
    match effect:
        case Apply(manifest):
            meta = manifest["metadata"]
            return f"{manifest['kind']} {meta.get('namespace', '')}/{meta['name']}"
        case Remove() | Evict() | SetStatus() | PatchMeta():
            return str(effect.ref)
        case Report():
            return f"{effect.ref}: {effect.reason}"
        case _:
            return repr(effect)[:200]
