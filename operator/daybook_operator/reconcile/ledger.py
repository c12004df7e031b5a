"""Observes a Ledger resource for its plan, and has the plan carried out."""

import base64
from dataclasses import asdict

from daybook.core.errors import MetadataUnavailableError, NoSuchLedgerError
from daybook.core.ids import BookieId, LedgerId
from daybook.core.ledger.metadata import LedgerMetadata
from daybook.core.placement.policies import PlacementSettings
from daybook.core.placement.policy import BookieInfo
from daybook.metadata.store.store import Versioned
from daybook_operator.clusters.link import ClusterLink
from daybook_operator.kube.api import ForbiddenError, NotFoundError, Object
from daybook_operator.kube.queue import LEDGER, Key
from daybook_operator.plan.effects import ClusterRef
from daybook_operator.plan.ledger.observed import LedgerInCluster, ObservedLedger
from daybook_operator.plan.ledger.plan import decide
from daybook_operator.plan.ledger.spec import LedgerSpec
from daybook_operator.plan.pool.spec import spec_of
from daybook_operator.plan.spec_part import parse_spec
from daybook_operator.reconcile.lost_ledgers import verdicts
from daybook_operator.reconcile.services import Services
from daybook_operator.reconcile.stored import (
    carry_out,
    cluster_ref_of,
    finalizer_rules,
    namespace_terminates,
    needs_cluster,
)


class LedgerReconciler:
    """Reconciles "Ledger" keys."""

    def __init__(self, services: Services) -> None:
        """Nothing is observed yet."""
        self._services = services

    async def reconcile(self, key: Key) -> float | None:
        """Observe the resource and carry out its plan; see `queue.Reconcile`."""
        services = self._services
        manifest = await services.kube.find("Ledger", key.namespace, key.name)
        if manifest is None:
            self._forget(key)
            return None
        return await carry_out(services, await self._observe(key, manifest), decide)

    def _forget(self, key: Key) -> None:
        bound = self._services.inventory.remove(key)
        if bound is None or self._services.inventory.key_of(LEDGER, *bound) is not None:
            return  # another resource still has the ledger
        if (link := self._services.clusters.find(bound[0])) is not None:
            link.unfollow(bound[1])

    # Observing.

    async def _observe(self, key: Key, manifest: Object) -> ObservedLedger:
        services = self._services
        spec = parse_spec(LedgerSpec, manifest)
        pool_name = spec.pool_ref.name
        services.inventory.note(LEDGER, key.namespace, key.name, pool_name, is_there=True)
        pool = await services.kube.find("BookiePool", key.namespace, pool_name)
        ref = cluster_ref_of(services, manifest, pool)
        rules = finalizer_rules(services)
        password: bytes | None = b""
        password_error = ""
        placement = (
            spec_of(pool, services.pool_defaults).placement.settings if pool else PlacementSettings("zone")
        )
        seen, cluster_error = None, ""
        if ref is not None and needs_cluster(manifest, rules):
            services.inventory.need(key, ref)  # before the link is open: a resync must not end the attempt
            try:
                link = await services.clusters.link(ref)
                seen = await self._observe_cluster(key, manifest, spec, link)
                if seen.ledger_id is None:
                    password, password_error = await self._password(key.namespace, spec)
            except MetadataUnavailableError as error:
                cluster_error = str(error)
        return ObservedLedger(
            manifest,
            pool,
            ref,
            seen,
            placement,
            cluster_error=cluster_error,
            password=password,
            password_error=password_error,
            namespace_is_terminating=await namespace_terminates(services, manifest),
            finalizers=rules,
        )

    async def _password(self, namespace: str, spec: LedgerSpec) -> tuple[bytes | None, str]:
        """The password that the ledger is to have, or why it cannot be read."""
        ref = spec.password_secret_ref
        if ref is None:
            return b"", ""
        try:
            secret = await self._services.kube.get("Secret", namespace, ref.name)
        except (NotFoundError, ForbiddenError) as error:
            return None, str(error)
        text = (secret.get("data") or {}).get(ref.key)
        return (base64.b64decode(text), "") if text else (None, f"Secret {ref.name} has no key {ref.key!r}")

    async def _observe_cluster(
        self, key: Key, manifest: Object, spec: LedgerSpec, link: ClusterLink
    ) -> LedgerInCluster:
        uid = manifest["metadata"]["uid"]
        client = link.client
        registered = client.bookies()
        places = await client.directory.topology()
        bookies: dict[BookieId, BookieInfo] = {
            bookie: BookieInfo(bookie, writable=False, **asdict(place)) for bookie, place in places.items()
        }
        bookies |= registered
        ledger_id = await client.ledgers.ledger_of_request(uid)
        if ledger_id is None:
            self._services.inventory.unbind(key)
            adoptee = None if spec.ledger_id is None else await _read(link, spec.ledger_id)
            holder = "" if spec.ledger_id is None else self._holder(key, link.ref, spec.ledger_id)
            return LedgerInCluster(
                None, bookies=bookies, registered=frozenset(registered), adoptee=adoptee, holder=holder
            )
        self._services.inventory.bind(key, link.ref, ledger_id)
        link.follow(ledger_id)
        metadata = await _read(link, ledger_id)
        if metadata is None:
            return LedgerInCluster(ledger_id, bookies=bookies, registered=frozenset(registered))
        task = await link.tasks.read(ledger_id)
        return LedgerInCluster(
            ledger_id,
            metadata,
            bookies,
            frozenset(registered),
            task.value if task else None,
            verdict=next(iter(await verdicts(link, [task])), None) if task else None,
            holder=self._holder(key, link.ref, ledger_id),
            audited=link.audits.last_report is not None,
            recovery_job=self._services.inventory.job_of(link.ref, ledger_id),
            problems=link.audits.without_task.get(ledger_id, ()),
        )

    def _holder(self, key: Key, ref: ClusterRef, ledger_id: LedgerId) -> str:
        """Another resource that has the ledger, as `namespace/name`; "" if none is known."""
        found = self._services.inventory.key_of(LEDGER, ref, ledger_id)
        return "" if found is None or found == key else f"{found.namespace}/{found.name}"


async def _read(link: ClusterLink, ledger_id: LedgerId) -> Versioned[LedgerMetadata] | None:
    try:
        return await link.client.ledgers.read(ledger_id, sync=True)
    except NoSuchLedgerError:
        return None
