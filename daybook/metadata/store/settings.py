"""The clients' settings of ZooKeeper's TLS and authentication: DAYBOOK_ZOOKEEPER_* variables.

Workers and commands read the same variables, so one environment configures all of them, and secrets stay out of command
lines. A bookie and a broker have these among their own settings, with the same meaning.
"""

from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from daybook.metadata.store.acl import acl_of_nodes
from daybook.metadata.store.environment import PREFIX
from daybook.metadata.store.zookeeper import ZooKeeperOptions
from daybook.runtime.settings import Settings, load_settings


class ZooKeeperSettings(Settings):
    """The values of `ZooKeeperOptions`."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        **{**Settings.model_config, "env_prefix": PREFIX}
    )

    session_timeout_ms: int = Field(
        5_000, ge=500, description="session time-out, after which the cluster notices that a process is gone"
    )
    connect_timeout_ms: int = Field(10_000, ge=1, description="time-out of the first connection")
    tls: bool = Field(default=False, description="true: connect with TLS; implied by the files below")
    tls_ca: Path | None = Field(None, description="PEM file of the CA that signed ZooKeeper's certificate")
    tls_certificate: Path | None = Field(None, description="PEM certificate to present to ZooKeeper")
    tls_key: Path | None = Field(None, description="PEM key of that certificate")
    tls_key_password: SecretStr = Field(SecretStr(""), description="password of that key")
    sasl_mechanism: str = Field("", description="DIGEST-MD5, GSSAPI, …: authenticate with SASL")
    sasl_username: str = Field("", description="user of SASL")
    sasl_password: SecretStr = Field(SecretStr(""), description="password of SASL")
    digest: SecretStr = Field(SecretStr(""), description="user:password of the digest scheme")
    x509_owners: tuple[str, ...] = Field(
        (),
        description="JSON list of the subjects of all client certificates, like CN=bookie,O=x: they own all nodes",
    )

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            msg = "tls_certificate and tls_key go together: set both, or none"
            raise ValueError(msg)
        return self


def options_of_variables() -> ZooKeeperOptions:
    """Options from the environment; created nodes belong to the authenticated user. Raises SettingsError."""
    settings = load_settings(ZooKeeperSettings)
    sasl = {
        "mechanism": settings.sasl_mechanism,
        "username": settings.sasl_username,
        "password": settings.sasl_password.get_secret_value(),
    }
    digest = settings.digest.get_secret_value()
    return ZooKeeperOptions(
        session_timeout_s=settings.session_timeout_ms / 1000,
        connect_timeout_s=settings.connect_timeout_ms / 1000,
        tls=settings.tls or any((settings.tls_ca, settings.tls_certificate)),
        ca_file=str(settings.tls_ca or ""),
        cert_file=str(settings.tls_certificate or ""),
        key_file=str(settings.tls_key or ""),
        key_password=settings.tls_key_password.get_secret_value(),
        sasl={name: value for name, value in sasl.items() if value} if settings.sasl_mechanism else None,
        auth=(("digest", digest),) if digest else (),
        acl=acl_of_nodes(
            has_user=bool(digest or settings.sasl_mechanism),
            shows_certificate=settings.tls_certificate is not None,
            x509_owners=settings.x509_owners,
        ),
    )


class ProcessSettings(Settings):
    """What a bookie and a broker have in common: their cluster, and how they reach its ZooKeeper."""

    zookeeper: str = Field(description="host:port[,host:port…] of ZooKeeper")
    cluster: str = Field("daybook", description="the cluster's name in ZooKeeper")
    zookeeper_tls: bool = Field(default=False, description="speak TLS to ZooKeeper")
    zookeeper_tls_ca: Path | None = Field(None, description="PEM CA of ZooKeeper's certificates")
    zookeeper_tls_certificate: Path | None = Field(None, description="PEM certificate shown to ZooKeeper")
    zookeeper_tls_key: Path | None = Field(None, description="PEM key of that certificate")
    zookeeper_digest: SecretStr | None = Field(None, description="user:password for ZooKeeper's ACLs")
    zookeeper_x509_owners: tuple[str, ...] = Field(
        (),
        description="JSON list of the subjects of all client certificates, like CN=bookie,O=x: they own all nodes",
    )
    connect_timeout_ms: int = Field(
        10_000, ge=100, description="how long a start waits for ZooKeeper, and a broker for its cluster"
    )
    session_timeout_ms: int = Field(5_000, ge=500, description="ZooKeeper session")


def options_of_process(settings: ProcessSettings) -> ZooKeeperOptions:
    """How a bookie or a broker reaches ZooKeeper; with a digest, nodes that it makes belong to who has it."""
    digest = settings.zookeeper_digest
    return ZooKeeperOptions(
        session_timeout_s=settings.session_timeout_ms / 1000,
        connect_timeout_s=settings.connect_timeout_ms / 1000,
        tls=settings.zookeeper_tls,
        ca_file=str(settings.zookeeper_tls_ca or ""),
        cert_file=str(settings.zookeeper_tls_certificate or ""),
        key_file=str(settings.zookeeper_tls_key or ""),
        auth=() if digest is None else (("digest", digest.get_secret_value()),),
        acl=acl_of_nodes(
            has_user=digest is not None,
            shows_certificate=settings.zookeeper_tls_certificate is not None,
            x509_owners=settings.zookeeper_x509_owners,
        ),
    )
