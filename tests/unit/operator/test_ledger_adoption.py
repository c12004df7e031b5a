"""A Ledger resource that names a ledger which exists: it is bound, and only with its password."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from daybook_operator.kube.queue import Key
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import AdoptLedger, ClusterRef
from daybook_operator.plan.ledger.plan import decide
from daybook_operator.plan.pool.spec import PoolDefaults
from daybook_operator.reconcile.inventory import Inventory
from daybook_operator.reconcile.ledger import LedgerReconciler
from daybook_operator.settings import OperatorSettings

from daybook.core.ledger.metadata import hash_password
from daybook.metadata.store.store import Versioned
from tests.unit.operator.pool_facts import pool_manifest
from tests.unit.operator.test_ledger_plan import (
    NOW_MS,
    REF,
    condition,
    created,
    deleted,
    kinds,
    manifest,
    of_kind,
    seen,
    status,
    world,
)


def adopting(password: bytes | None, *, there: bool = True, holder: str = "") -> Decision:
    """A resource that asks for ledger 7, whose password is "hunter2"."""
    found = created().metadata
    assert found is not None
    hashed = replace(found.value, password_hash=hash_password(b"hunter2", b"salt"))
    adoptee = Versioned(hashed, found.version) if there else None
    return decide(
        world(
            seen(adoptee=adoptee, holder=holder),
            manifest=manifest(spec={"ledgerId": 7, "passwordSecretRef": {"name": "key"}}),
            password=password,
        ),
        NOW_MS,
    )


def test_a_ledger_that_exists_is_adopted_at_the_version_that_was_read_and_none_is_created() -> None:
    decision = adopting(b"hunter2")
    effect = of_kind(decision, AdoptLedger)
    assert (effect.request_uid, effect.ledger.value.ledger_id, effect.ledger.version) == ("uid-1", 7, 4)
    assert "CreateLedger" not in kinds(decision)


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        (adopting(b""), "WrongPassword"),
        (adopting(None), "PasswordNotReadable"),
        (adopting(b"hunter2", there=False), "LedgerNotFound"),
    ],
    ids=["no password", "none that can be read", "no such ledger"],
)
def test_a_ledger_is_adopted_only_with_its_password(decision: Decision, reason: str) -> None:
    assert condition(decision, "Ready")["reason"] == reason
    assert not {"AdoptLedger", "CreateLedger"} & set(kinds(decision))


# One resource for each ledger.


def test_a_ledger_that_another_resource_has_is_not_adopted() -> None:
    decision = adopting(b"hunter2", holder="data/first")
    ready = condition(decision, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ResourceConflict")
    assert "Ledger 7 is that of the Ledger data/first" in ready["message"]
    assert kinds(decision) == ["Report", "SetStatus"]
    assert decision.requeue_after_s, "once the other one is gone this one adopts it, and no event says so"
    assert condition(adopting(b"", holder="data/first"), "Ready")["reason"] == "WrongPassword", (
        "who has it is said to nobody else"
    )


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_of_two_that_adopted_a_ledger_at_once_the_second_harms_it_not(policy: str) -> None:
    both = created(holder="data/first")
    spec = {"reclaimPolicy": policy, "seal": True}
    decision = decide(world(both, manifest=manifest(spec=spec)), NOW_MS)
    assert condition(decision, "Ready")["reason"] == "ResourceConflict"
    assert kinds(decision) == ["Report", "SetStatus"], "it is not sealed"
    assert "ledgerId" not in status(decision), "or the next operator would bind it first"
    assert kinds(decide(world(both, manifest=deleted(spec=spec)), NOW_MS)) == [
        "ForgetRequest",
        "Report",
        "PatchMeta",
    ]


FIRST, SECOND = Key("Ledger", "data", "first"), Key("Ledger", "data", "second")


def test_notifications_stay_with_the_first_resource_of_a_ledger() -> None:
    inventory = Inventory()
    inventory.bind(FIRST, REF, 7)
    inventory.bind(SECOND, REF, 7)
    assert inventory.key_of("Ledger", REF, 7) == FIRST
    inventory.remove(SECOND)
    assert inventory.key_of("Ledger", REF, 7) == FIRST
    inventory.bind(SECOND, REF, 7)
    inventory.bind(FIRST, REF, 8)
    inventory.bind(SECOND, REF, 7)
    assert inventory.key_of("Ledger", REF, 7) == SECOND, "once the first has another one"


def test_a_new_operator_knows_who_has_a_ledger_before_it_reconciles_anybody() -> None:
    inventory = Inventory()
    listed = manifest(meta={"name": "first"}, status={"ledgerId": 7})
    inventory.note_ledger(listed)
    inventory.note_ledger(manifest(meta={"name": "second"}, spec={"ledgerId": 7}))
    assert inventory.key_of("Ledger", REF, 7) == FIRST
    inventory.bind(FIRST, REF, 8)
    inventory.note_ledger(listed)
    assert inventory.key_of("Ledger", REF, 7) is None, "a reconcile knows better than a listing"


class Links:
    """A cluster that has ledger 7, which `first` has; `second` asks for it."""

    ref = REF

    def __init__(self) -> None:
        self.unfollowed: list[int] = []
        self.requests = {"uid-first": 7}
        self.client = SimpleNamespace(
            bookies=dict,
            directory=SimpleNamespace(topology=self._answer),
            ledgers=SimpleNamespace(ledger_of_request=self._request, read=self._ledger),
        )
        self.tasks = SimpleNamespace(read=self._nothing)
        self.audits = SimpleNamespace(last_report=None, without_task={})

    async def _answer(self) -> dict[str, object]:
        return {}

    async def _nothing(self, _: object) -> None:
        return None

    async def _request(self, uid: str) -> int | None:
        return self.requests.get(uid)

    async def _ledger(self, _: int, *, sync: bool) -> object:
        assert sync, "its deletion may depend on it"
        found = created().metadata
        assert found is not None
        return Versioned(replace(found.value, password_hash=hash_password(b"", b"salt")), found.version)

    async def link(self, _: ClusterRef) -> "Links":
        return self

    def find(self, _: ClusterRef) -> "Links":
        return self

    def follow(self, _: int) -> None:
        """Nothing changes here."""

    def unfollow(self, ledger_id: int) -> None:
        self.unfollowed.append(ledger_id)


async def test_the_second_resource_of_a_ledger_is_refused_and_leaves_the_first_its_watch() -> None:
    there = {
        "first": manifest(meta={"name": "first", "uid": "uid-first"}),
        "second": manifest(meta={"name": "second", "uid": "uid-second"}, spec={"ledgerId": 7}),
    }
    links, decisions = Links(), []

    async def find(kind: str, _: str, name: str) -> Any:
        return there.get(name) if kind == "Ledger" else pool_manifest()

    async def carry_out(decision: Decision) -> None:
        decisions.append(decision)

    services: Any = SimpleNamespace(
        kube=SimpleNamespace(find=find),
        clusters=links,
        performer=SimpleNamespace(carry_out=carry_out),
        settings=OperatorSettings(),
        pool_defaults=PoolDefaults("registry/bookie:1", REF.zookeeper, REF.cluster),
        inventory=Inventory(),
        now_ms=lambda: NOW_MS,
    )
    reconciler = LedgerReconciler(services)
    await reconciler.reconcile(FIRST)
    await reconciler.reconcile(SECOND)
    assert condition(decisions[-1], "Ready")["reason"] == "ResourceConflict"
    links.requests["uid-second"] = 7  # an operator of before adopted it
    await reconciler.reconcile(SECOND)
    assert condition(decisions[-1], "Ready")["reason"] == "ResourceConflict"
    del there["second"]
    await reconciler.reconcile(SECOND)
    assert not links.unfollowed
    del there["first"]
    await reconciler.reconcile(FIRST)
    assert links.unfollowed == [7]
