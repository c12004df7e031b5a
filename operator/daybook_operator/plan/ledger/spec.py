"""A Ledger's spec as values."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from daybook_operator.plan.spec_part import SpecPart
from daybook_operator.plan.stored import PoolRef


class PasswordSecretRef(SpecPart):
    """Where the ledger's password is."""

    name: str
    key: str = "password"


class LedgerSpec(SpecPart):
    """What ledger is asked for. `ledger_id`: one that exists and is to be adopted; None: one is created."""

    pool_ref: PoolRef
    ensemble_size: int = 3
    write_quorum: int = 3
    ack_quorum: int = 2
    ledger_id: int | None = None
    password_secret_ref: PasswordSecretRef | None = None
    custom_metadata: Mapping[str, str] = Field(default_factory=dict)
    seal: bool = False
    reclaim_policy: Literal["Retain", "Delete"] = "Retain"
