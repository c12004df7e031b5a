"""A Ledger resource that names a ledger which exists: it is bound, and only with its password."""

from dataclasses import replace

import pytest
from daybook_operator.plan.decision import Decision
from daybook_operator.plan.effects import AdoptLedger
from daybook_operator.plan.ledger.plan import decide

from daybook.core.ledger.metadata import hash_password
from daybook.metadata.store.store import Versioned
from tests.unit.operator.test_ledger_plan import (
    NOW_MS,
    condition,
    created,
    kinds,
    manifest,
    of_kind,
    seen,
    world,
)


def adopting(password: bytes | None, *, there: bool = True) -> Decision:
    """A resource that asks for ledger 7, whose password is "hunter2"."""
    found = created().metadata
    assert found is not None
    hashed = replace(found.value, password_hash=hash_password(b"hunter2", b"salt"))
    adoptee = Versioned(hashed, found.version) if there else None
    return decide(
        world(
            seen(adoptee=adoptee),
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
