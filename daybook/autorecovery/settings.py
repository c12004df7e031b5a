"""Patience and pace of auto-recovery: flags, DAYBOOK_AUTORECOVERY_* variables, defaults.

How long a bookie may be away before it counts as lost is not here: it is one setting of the whole cluster, in
ZooKeeper, so that an auditor elected elsewhere has the same patience (rule 33).
"""

from typing import ClassVar

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from daybook.core.audit.auditor import AuditorPolicy
from daybook.core.repair.copy import RepairPolicy
from daybook.core.repair.task import BACK_OFF_MS_MAX, BackOff
from daybook.runtime.ports import parse_address
from daybook.runtime.settings import Settings


class AutoRecoverySettings(Settings):
    """Settings of auditors and workers."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        **{**Settings.model_config, "env_prefix": "DAYBOOK_AUTORECOVERY_"}
    )

    audit_interval_ms: int = Field(60_000, ge=10, description="pause between quick audits, from metadata")
    full_audit_interval_ms: int = Field(
        86_400_000, ge=10, description="pause between full audits, which compare every entry with listings"
    )
    open_grace_ms: int = Field(
        30_000, ge=0, description="how long an open fragment in need waits before its ledger is recovered"
    )
    second_look_ms: int = Field(
        1_000,
        ge=0,
        description="after how long a gap of an open fragment is looked at again, before it counts",
    )
    reads_per_second: int = Field(500, ge=1, description="ledgers read from ZooKeeper in a second")
    reads_in_flight_max: int = Field(50, ge=1, description="ledgers looked at at once")
    calls_per_bookie_max: int = Field(4, ge=1, description="questions to one bookie at once")

    ledgers_at_a_time: int = Field(4, ge=1, description="ledgers that a worker repairs at once")
    bytes_per_second: int = Field(
        64 * 1024 * 1024,
        ge=0,
        description="what a worker copies in a second, all ledgers together; 0: no limit",
    )
    retry_first_ms: int = Field(5_000, ge=1, description="pause after a ledger's first failed repair")
    retry_max_ms: int = Field(
        BACK_OFF_MS_MAX, ge=1, description="longest pause; it doubles with each failure"
    )
    attempts_max: int = Field(3, ge=1, description="attempts at a ledger that was asked for by its id")
    stop_grace_ms: int = Field(
        10_000, ge=0, description="how long a stopping worker goes on with the fragments it copies"
    )

    health_address: str = Field("127.0.0.1:0", description="host:port of grpc.health.v1")
    metrics_address: str = Field("127.0.0.1:0", description="host:port of the Prometheus endpoint")

    @field_validator("health_address", "metrics_address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        parse_address(value)
        return value

    def auditor_policy(self, lost_delay_ms: int) -> AuditorPolicy:
        """The settings of the core's auditor."""
        return AuditorPolicy(
            lost_delay_ms=lost_delay_ms,
            open_grace_ms=self.open_grace_ms,
            reads_per_second=self.reads_per_second,
            reads_in_flight_max=self.reads_in_flight_max,
        )

    def repair_policy(self) -> RepairPolicy:
        """The limits of each repair: its share of the worker's bytes."""
        share = self.bytes_per_second // self.ledgers_at_a_time
        return RepairPolicy(bytes_per_second=max(1, share) if self.bytes_per_second else None)

    def back_off(self) -> BackOff:
        """How long a ledger waits after failed repairs (rule 35)."""
        return BackOff(self.retry_first_ms, self.retry_max_ms)
