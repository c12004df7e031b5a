"""What a broker is configured with: flags, DAYBOOK_BROKER_* variables, a TOML file, defaults.

Every bound on memory and on what clients may take is here. What a topic or a namespace has of its own (retention, TTL, quotas,
durability) is policy in ZooKeeper; the values here hold where no policy says otherwise. Defaults are Pulsar's where Pulsar has them.
"""

import re
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from daybook.core.ids import check_bookie_id
from daybook.core.quorum import Quorum
from daybook.core.topics.cursor_pace import CursorPolicy
from daybook.core.topics.dispatch.policy import PERMITS_MAX, DispatchPolicy
from daybook.core.topics.open_ledger import ManagedLedgerPolicy
from daybook.core.topics.policy import BacklogAction, Degrade, Durability, Policy
from daybook.metadata.store.settings import ProcessSettings
from daybook.runtime.log_output import LogFormat
from daybook.runtime.ports import parse_address
from daybook.runtime.tls import TlsFiles
from daybook.wire.pulsar.frames import MESSAGE_BYTES_MAX

MIB: Final = 1024 * 1024
NONE: Final = -1
"""No limit, as Pulsar writes it."""

_LISTENER: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):(pulsar(?:\+ssl)?)://(.+)")


class AuthMethod(Enum):
    """How a client shows who it is; the names are Pulsar's."""

    TOKEN = "token"  # noqa: S105 - the name of a method
    TLS = "tls"


class BrokerSettings(ProcessSettings):
    """Settings of one broker process."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        **{**ProcessSettings.model_config, "env_prefix": "DAYBOOK_BROKER_"}
    )

    broker_id: str = Field(description="the broker's name, like broker-0; no two brokers have the same")

    address: str = Field("127.0.0.1:0", description="host:port of pulsar://; port 0 takes a free one")
    advertised_address: str = Field("", description="host:port that clients use, if it differs")
    tls_address: str = Field("", description="host:port of pulsar+ssl://; empty: none")
    advertised_tls_address: str = Field("", description="host:port of it that clients use, if it differs")
    listeners: tuple[str, ...] = Field(
        (),
        description="JSON list of addresses for clients that name a listener, like internal:pulsar://10.0.0.7:6650",
    )
    admin_address: str = Field(
        "127.0.0.1:0", description="host:port of the admin and lookup HTTP; empty: none"
    )
    advertised_admin_address: str = Field("", description="host:port of it that clients use, if it differs")
    admin_tls_address: str = Field("", description="host:port of the same over https; empty: none")
    advertised_admin_tls_address: str = Field(
        "", description="host:port of it that clients use, if it differs"
    )
    health_address: str = Field("127.0.0.1:0", description="host:port of grpc.health.v1, without TLS")
    metrics_address: str = Field("127.0.0.1:0", description="host:port of the Prometheus endpoint")
    ready_file: Path | None = Field(
        None, description="file that gets the addresses as JSON once the broker serves"
    )
    zone: str = Field("", description="where this broker is: it reads from near bookies first")
    rack: str = Field("", description="where this broker is: it reads from near bookies first")

    tls_certificate: Path | None = Field(
        None, description="PEM certificate of tls_address and admin_tls_address"
    )
    tls_key: Path | None = Field(None, description="PEM key of the certificate")
    tls_ca: Path | None = Field(
        None, description="PEM CA that must have signed clients' certificates (mutual TLS)"
    )

    authentication: tuple[AuthMethod, ...] = Field(
        (),
        description='JSON list of ways to show who one is: "token", "tls"; empty: everybody may do everything',
    )
    token_secret_file: Path | None = Field(
        None, description="file whose bytes are the secret of HS256 tokens, at least 32 of them"
    )
    token_public_key_file: Path | None = Field(
        None, description="PEM or DER file with the public key of RS256 or ES256 tokens"
    )
    token_role_claim: str = Field("sub", min_length=1, description="the claim of a token that is the role")
    superuser_roles: tuple[str, ...] = Field((), description="JSON list of roles that may do everything")
    jobs_roles: tuple[str, ...] = Field(
        (), description="JSON list of roles that may see all topics and ask their owners for upkeep"
    )

    bookie_tls_ca: Path | None = Field(None, description="PEM CA of the bookies' certificates; TLS if set")
    bookie_tls_certificate: Path | None = Field(None, description="PEM certificate shown to bookies")
    bookie_tls_key: Path | None = Field(None, description="PEM key of that certificate")

    ensemble_size: int = Field(3, ge=1, description="E of a topic's ledgers, unless its policy says it")
    write_quorum: int = Field(3, ge=1, description="Qw of a topic's ledgers, unless its policy says it")
    durability: Durability = Field(
        Durability.SEMI_SYNC,
        description="copies before a receipt: sync (all of Qw), semi-sync (all but one), async (one)",
    )
    pool: str = Field(
        "",
        description="the pool whose bookies alone hold a topic's ledgers, unless its policy says it; empty: any bookies",
    )
    degrade: Degrade = Field(
        Degrade.TO_ACK_QUORUM,
        description="while bookies are missing: never (refuse) or to-ack-quorum (continue with fewer copies)",
    )

    ledger_entries_max: int = Field(50_000, ge=1, description="a topic begins another ledger after so many")
    ledger_bytes_max: int = Field(2048 * MIB, ge=1, description="and after so many bytes")
    ledger_age_ms_min: int = Field(600_000, ge=0, description="however full it is, not before this age")
    ledger_age_ms_max: int = Field(14_400_000, ge=1, description="and at this age whatever is in it")
    ledger_idle_ms_max: int = Field(600_000, ge=1, description="a ledger that takes nothing is closed")
    cursor_ledger_entries_max: int = Field(50_000, ge=1, description="entries of a cursor's ledger")
    cursor_ledger_age_ms_max: int = Field(14_400_000, ge=1, description="age of a cursor's ledger")
    cursor_persist_ms: int = Field(
        1_000, ge=1, description="what is acknowledged is persisted at most so often (rule 40)"
    )

    retention_ms: int = Field(0, ge=NONE, description="how long acknowledged messages stay; −1: for ever")
    retention_bytes: int = Field(0, ge=NONE, description="how many bytes of them stay; −1: any number")
    ttl_ms: int = Field(0, ge=0, description="age at which a message is acknowledged by itself; 0: never")
    backlog_bytes: int = Field(NONE, ge=NONE, description="quota of a topic's backlog; −1: none")
    backlog_ms: int = Field(NONE, ge=NONE, description="the same as the age of the backlog; −1: none")
    backlog_action: BacklogAction = Field(
        BacklogAction.HOLD,
        description="over the quota: producer_request_hold, producer_exception or consumer_backlog_eviction",
    )
    trim_interval_ms: int = Field(120_000, ge=10, description="pause between trims of a topic")
    ttl_interval_ms: int = Field(300_000, ge=10, description="pause between searches for expired messages")
    quota_interval_ms: int = Field(60_000, ge=10, description="pause between checks of backlog quotas")
    collect_interval_ms: int = Field(
        3_600_000, ge=10, description="pause between searches for ledgers of topics that nothing names"
    )
    collect_grace_ms: int = Field(3_600_000, ge=0, description="age from which such a ledger is deleted")

    compaction_bytes_max: int = Field(
        256 * MIB, ge=0, description="a topic with more than so much to read is not compacted by its broker"
    )
    compaction_keys_bytes_max: int = Field(
        256 * MIB, ge=1, description="memory for the keys of one compaction"
    )
    compaction_keeps_keyless: bool = Field(
        default=True, description="messages without a key stay when a topic is compacted"
    )

    auto_create: bool = Field(default=True, description="topics are created when they are first used")
    auto_create_partitions: int = Field(0, ge=0, description="with so many partitions; 0: not partitioned")
    auto_create_subscriptions: bool = Field(
        default=True, description="subscriptions are created when they are first used"
    )
    inactive_ms: int = Field(
        0,
        ge=0,
        description="a topic without clients, subscriptions and retained messages goes after so long; 0: never",
    )

    lookup_wait_ms: int = Field(
        25_000, ge=0, description="how long a lookup, a producer or a subscription waits for a new owner"
    )
    shed_interval_ms: int = Field(
        60_000, ge=100, description="pause between decisions of the leader to move load"
    )
    load_report_ms: int = Field(5_000, ge=100, description="pause between a broker's reports of its load")

    connections_max: int = Field(10_000, ge=1, description="connections of clients")
    topics_max: int = Field(50_000, ge=1, description="topics that this broker holds at once")
    producers_max: int = Field(10_000, ge=1, description="producers of one topic")
    consumers_max: int = Field(10_000, ge=1, description="consumers of one subscription")
    subscriptions_max: int = Field(10_000, ge=1, description="subscriptions of one topic")
    handles_max: int = Field(20_000, ge=1, description="producers and consumers of one connection")
    requests_max: int = Field(5_000, ge=1, description="requests of one connection that wait for an answer")
    unacked_consumer_max: int = Field(
        50_000, ge=0, description="messages that a consumer may leave unacknowledged; 0: any number"
    )
    unacked_subscription_max: int = Field(
        200_000, ge=0, description="the same for a subscription; 0: any number"
    )
    message_bytes_max: int = Field(
        MESSAGE_BYTES_MAX,
        ge=10 * 1024,
        le=MESSAGE_BYTES_MAX,
        description="the largest message, with its metadata; clients learn it when they connect, and cut larger ones into chunks",
    )
    connection_pending_bytes: int = Field(
        16 * MIB, ge=MIB, description="a connection with so much unacknowledged by bookies is not read from"
    )
    topic_pending_bytes: int = Field(64 * MIB, ge=MIB, description="and the connections of such a topic")
    pending_bytes: int = Field(256 * MIB, ge=MIB, description="and all connections, for the whole broker")
    send_buffer_bytes: int = Field(
        8 * MIB, ge=MIB, description="a connection that takes nothing gets nothing more beyond this"
    )
    cache_bytes: int = Field(128 * MIB, ge=0, description="tail cache, for all topics together; 0: none")
    read_ahead_bytes: int = Field(
        64 * MIB, ge=MIB, description="read from bookies for consumers that lag, for all topics together"
    )
    offload_cache_bytes: int = Field(
        64 * MIB, ge=0, description="read from files of offloaded ledgers, for all topics together; 0: none"
    )
    recoveries_max: int = Field(
        128,
        ge=1,
        description="ledgers that are recovered at once; each waits for bookies and ZooKeeper most of its time",
    )
    takeovers_max: int = Field(128, ge=1, description="topics that are taken over at once")

    keep_alive_ms: int = Field(30_000, ge=100, description="pause between pings of a silent connection")
    stuck_after_ms: int = Field(
        30_000, ge=100, description="an event loop without progress for so long is not alive"
    )
    drain_ms: int = Field(
        10_000, ge=0, description="how long a stopping broker may take to unload its topics"
    )
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    log_format: LogFormat = Field(LogFormat.AUTO, description="json, console or auto")

    @field_validator("broker_id")
    @classmethod
    def _check_id(cls, value: str) -> str:
        try:
            return check_bookie_id(value)
        except ValueError as error:
            raise ValueError(str(error).replace("bookie", "broker")) from error

    @field_validator("address", "health_address", "metrics_address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        parse_address(value)
        return value

    @field_validator(
        "tls_address",
        "advertised_address",
        "advertised_tls_address",
        "admin_address",
        "advertised_admin_address",
        "admin_tls_address",
        "advertised_admin_tls_address",
    )
    @classmethod
    def _check_other_address(cls, value: str) -> str:
        if value:
            parse_address(value)
        return value

    @field_validator("listeners")
    @classmethod
    def _check_listeners(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            _parse_listener(text)
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        _ = self.policy  # raises PolicyError, a ValueError, for what does not go together
        for pair in (("tls_certificate", "tls_key"), ("bookie_tls_certificate", "bookie_tls_key")):
            if (getattr(self, pair[0]) is None) != (getattr(self, pair[1]) is None):
                msg = f"{pair[0]} and {pair[1]} go together: set both, or none"
                raise ValueError(msg)
        self._check_tls()
        self._check_authentication()
        if self.ledger_age_ms_min > self.ledger_age_ms_max:
            msg = f"ledger_age_ms_min={self.ledger_age_ms_min} is over ledger_age_ms_max={self.ledger_age_ms_max}"
            raise ValueError(msg)
        return self

    def _check_tls(self) -> None:
        is_secure = bool(self.tls_address or self.admin_tls_address)
        if is_secure != (self.tls_certificate is not None):
            msg = "tls_address and tls_certificate go together (or admin_tls_address with it): set both, or none"
            raise ValueError(msg)
        if self.tls_ca is not None and not is_secure:
            msg = "tls_ca asks clients for certificates, which needs tls_address or admin_tls_address"
            raise ValueError(msg)
        if not (self.admin_address or self.admin_tls_address):
            msg = "the admin HTTP needs admin_address or admin_tls_address: brokers and commands ask it"
            raise ValueError(msg)

    def _check_authentication(self) -> None:
        keys = sum(file is not None for file in (self.token_secret_file, self.token_public_key_file))
        if keys != (AuthMethod.TOKEN in self.authentication):
            msg = 'authentication with "token" needs token_secret_file or token_public_key_file, one of them, and nothing else does'
            raise ValueError(msg)
        if AuthMethod.TLS in self.authentication and self.tls_ca is None:
            msg = 'authentication with "tls" needs tls_ca, which asks clients for certificates'
            raise ValueError(msg)
        for setting in ("superuser_roles", "jobs_roles"):
            if getattr(self, setting) and not self.authentication:
                msg = f"{setting} needs authentication: without it nobody has a role"
                raise ValueError(msg)

    @property
    def policy(self) -> Policy:
        """What holds for a topic where neither its own policy nor its namespace's says otherwise."""
        return Policy(**{each.name: getattr(self, each.name) for each in fields(Policy)})

    @property
    def tls_files(self) -> TlsFiles:
        """Of the ports that have TLS."""
        return TlsFiles(self.tls_certificate, self.tls_key, self.tls_ca)

    @property
    def quorum(self) -> Quorum:
        """Of a topic's ledgers, where no policy says otherwise."""
        return self.policy.quorum

    @property
    def ledger_policy(self) -> ManagedLedgerPolicy:
        """When a topic begins another ledger."""
        return ManagedLedgerPolicy(
            entries_max=self.ledger_entries_max,
            size_bytes_max=self.ledger_bytes_max,
            age_ms_max=self.ledger_age_ms_max,
            age_ms_min=self.ledger_age_ms_min,
            idle_ms_max=self.ledger_idle_ms_max,
            pending_bytes_max=self.topic_pending_bytes,
        )

    @property
    def cursor_policy(self) -> CursorPolicy:
        """How often a subscription's cursor is persisted, and when it begins another ledger."""
        return CursorPolicy(
            persist_ms=self.cursor_persist_ms,
            entries_max=self.cursor_ledger_entries_max,
            age_ms_max=self.cursor_ledger_age_ms_max,
        )

    @property
    def dispatch_policy(self) -> DispatchPolicy:
        """How much the consumers of a subscription may leave unacknowledged."""
        return DispatchPolicy(
            unacked_per_consumer_max=self.unacked_consumer_max or PERMITS_MAX,
            unacked_per_subscription_max=self.unacked_subscription_max or PERMITS_MAX,
        )

    def listener_url(self, name: str, *, tls: bool) -> str | None:
        """The address for clients that name the listener `name`; None if there is none."""
        scheme = "pulsar+ssl" if tls else "pulsar"
        for text in self.listeners:
            if text.startswith(f"{name}:{scheme}://"):
                return text.partition(":")[2]
        return None


def _parse_listener(text: str) -> None:
    found = _LISTENER.fullmatch(text)
    if found is None:
        msg = f"{text!r} is not a listener: write name:pulsar://host:port or name:pulsar+ssl://host:port"
        raise ValueError(msg)
    parse_address(found[3])
