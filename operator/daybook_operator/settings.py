"""The operator's settings: DAYBOOK_OPERATOR_* variables, a TOML file, defaults.

Auditors have DAYBOOK_AUTORECOVERY_*, the connection to ZooKeeper DAYBOOK_ZOOKEEPER_*: the same names as everywhere.
"""

import os
import socket
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from daybook.runtime.log_output import LogFormat
from daybook.runtime.ports import parse_address
from daybook.runtime.settings import Settings


class OperatorSettings(Settings):
    """Settings of one operator process."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        **{**Settings.model_config, "env_prefix": "DAYBOOK_OPERATOR_"}
    )

    namespaces: str = Field("", description="namespaces to manage, separated by commas; empty: all")
    kubeconfig: Path | None = Field(
        None, description="how to reach the API server; default: the pod's own account, else KUBECONFIG"
    )
    cluster_domain: str = Field(
        "", description="DNS domain of the Kubernetes cluster, if names need it, like cluster.local"
    )

    zookeeper: str = Field("", description="host:port[,host:port…] for pools whose spec names none")
    cluster: str = Field("daybook", description="name in ZooKeeper of clusters whose spec names none")
    bookie_image: str = Field("", description="image of bookies and recovery Jobs where the spec names none")

    spark_image: str = Field("", description="image of the jobs on Spark where the spec names none")
    jobs_account: str = Field(
        "daybook-jobs", description="ServiceAccount of the drivers of jobs, which the chart makes"
    )

    identity: str = Field("", description="name of this process in the Lease; default: host name and process")
    lease_namespace: str = Field("default", description="namespace of the Lease that elects the leader")
    lease_name: str = Field("daybook-operator", description="name of that Lease")
    lease_duration_ms: int = Field(
        15_000, ge=1_000, description="a leader that is silent for so long has lost"
    )
    lease_renew_ms: int = Field(
        3_000, ge=100, description="pause between renewals, and between reads by a standby"
    )

    health_address: str = Field("127.0.0.1:0", description="host:port of /healthz and /readyz")
    metrics_address: str = Field("127.0.0.1:0", description="host:port of the Prometheus endpoint")
    ready_file: Path | None = Field(
        None, description="file that gets the addresses as JSON once they are known"
    )
    stuck_after_ms: int = Field(
        60_000, ge=1_000, description="an event loop without progress for so long is dead"
    )
    silent_after_ms: int = Field(
        600_000, ge=1_000, description="a leader without any event or resync for so long is dead"
    )

    workers: int = Field(4, ge=1, description="objects reconciled at once")
    reconcile_timeout_ms: int = Field(300_000, ge=1_000, description="longest reconcile of one object")
    resync_ms: int = Field(180_000, ge=100, description="pause between resyncs of everything")
    api_threads: int = Field(8, ge=1, description="requests to the API server at once")
    api_timeout_ms: int = Field(15_000, ge=100, description="longest request to the API server")
    zookeeper_timeout_ms: int = Field(
        5_000, ge=100, description="how long a reconcile waits for a ZooKeeper that has not answered yet"
    )

    tls_certificate: Path | None = Field(
        None, description="PEM certificate shown to bookies that ask for one"
    )
    tls_key: Path | None = Field(None, description="PEM key of that certificate")
    tls_ca: Path | None = Field(None, description="PEM CA that signed the bookies' certificates; TLS if set")

    broker_token_file: Path | None = Field(
        None, description="file with the token that the operator shows to brokers"
    )
    broker_tls_ca: Path | None = Field(
        None, description="PEM CA that signed the certificates of brokers' admin ports"
    )

    finalizers: bool = Field(
        default=True,
        description="put finalizers on resources, so that their deletion is carried through in ZooKeeper",
    )
    finalizer_bound_ms: int = Field(
        60_000, ge=0, description="how long a finalizer may hold an object of a namespace that terminates"
    )

    ledgers_per_job: int = Field(
        100, ge=1, le=100, description="most ledgers that one recovery Job repairs, whatever a pool asks for"
    )
    recovery_look_ms: int = Field(5_000, ge=100, description="how often a repair under way is reconciled")
    needless_job_ms: int = Field(
        10_000, ge=0, description="how long a recovery Job may run whose ledgers have no task any more"
    )
    full_audit_pause_ms: int = Field(
        10_000, ge=100, description="pause between full audits while one is owed because bookies returned"
    )

    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    log_format: LogFormat = Field(LogFormat.AUTO, description="json, console or auto")

    @field_validator("health_address", "metrics_address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        parse_address(value)
        return value

    @model_validator(mode="after")
    def _check_lease(self) -> Self:
        if self.lease_renew_ms * 3 > self.lease_duration_ms:
            msg = (
                f"lease_renew_ms={self.lease_renew_ms} leaves no room for two lost renewals in "
                f"lease_duration_ms={self.lease_duration_ms}: use a third of it or less"
            )
            raise ValueError(msg)
        return self

    @property
    def namespace_list(self) -> tuple[str, ...]:
        """The namespaces to manage; empty: all."""
        return tuple(sorted({name.strip() for name in self.namespaces.split(",") if name.strip()}))

    @property
    def speaks_tls(self) -> bool:
        """Whether this process speaks TLS with bookies, and TLS alone."""
        return self.tls_ca is not None or self.tls_certificate is not None

    @property
    def lease_identity(self) -> str:
        """Who this process is, for the Lease: never the same for two processes."""
        return self.identity or f"{socket.gethostname()}-{os.getpid()}"
