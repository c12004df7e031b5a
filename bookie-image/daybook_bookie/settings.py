"""What a bookie is configured with: flags, DAYBOOK_BOOKIE_* variables, a TOML file, defaults; and the sizes of its storage.

Every bound on memory is here, in bytes: the sum of the caches and queues is what keeps a bookie's own memory below
512 MiB under full load.
"""

from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar, Final, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from daybook.core.format.frame import FRAME_BYTES_TARGET
from daybook.core.ids import MESSAGE_BYTES_MAX, check_bookie_id
from daybook.metadata.store.settings import ProcessSettings
from daybook.runtime.log_output import LogFormat
from daybook.runtime.ports import Address, parse_address

MIB: Final = 1024 * 1024
LANE_OFF: Final = "off"
GIB: Final = 1024 * MIB
_MAP_BYTES_MIN: Final = 256 * GIB
_MAP_BYTES_MAX: Final = 64 * 1024 * GIB
"""A network file system may report exabytes, and a process has 128 TiB of address space."""
_MAP_GROWTH: Final = 4
_BYTES_MIN = 2 * MESSAGE_BYTES_MAX


class Enforcement(Enum):
    """What happens to a call without its role."""

    AUTO = "auto"
    """Refused if the bookie's own certificate has a role, else as with WARN."""
    ENFORCE = "enforce"
    """Refused."""
    WARN = "warn"
    """Allowed, logged and counted."""


class BookieSettings(ProcessSettings):
    """Settings of one bookie process."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        **{**ProcessSettings.model_config, "env_prefix": "DAYBOOK_BOOKIE_"}
    )

    bookie_id: str = Field(description="the bookie's name for life, like ns.pool-0; never an address")
    journal_dir: Path = Field(description="directory of the journal, best on a disk of its own")
    store_dir: Path = Field(description="directory of the entry store")

    address: str = Field("127.0.0.1:0", description="host:port to serve on; port 0 takes a free one")
    advertised_address: str = Field("", description="host:port that clients use, if it differs")
    advertised_ip_address: str = Field(
        "",
        description="IP address of that host, to which clients connect without DNS; empty: they look the host up",
    )
    plain_address: str = Field(
        "", description="host:port to serve on without TLS as well, while clients move to TLS or away from it"
    )
    advertised_plain_address: str = Field(
        "", description="host:port that clients without TLS use, if it differs"
    )
    lane_address: str = Field(
        "",
        description="host:port that serves append streams and reads without gRPC; empty: a free port of `address`'s host; off: none",
    )
    advertised_lane_address: str = Field(
        "",
        description="host:port of it that clients use; empty: the same port, on the host of `advertised_address`",
    )
    health_address: str = Field("127.0.0.1:0", description="host:port of grpc.health.v1, without TLS")
    metrics_address: str = Field("127.0.0.1:0", description="host:port of the Prometheus endpoint")
    ready_file: Path | None = Field(
        None, description="file that gets the addresses as JSON once the bookie serves"
    )

    region: str = Field("", description="region, unless the topology in ZooKeeper says it")
    zone: str = Field("", description="zone, unless the topology in ZooKeeper says it")
    rack: str = Field("", description="rack, unless the topology in ZooKeeper says it")
    node: str = Field("", description="machine, unless the topology in ZooKeeper says it")
    wait_for_topology: bool = Field(
        default=False, description="register only once the topology in ZooKeeper names this bookie"
    )
    owner_uid: str = Field("", description="UID of the pool the bookie belongs to; part of its cookie")

    tls_certificate: Path | None = Field(None, description="PEM certificate; TLS if set")
    tls_key: Path | None = Field(None, description="PEM key of the certificate")
    tls_ca: Path | None = Field(
        None, description="PEM CA that must have signed clients' certificates (mutual TLS)"
    )

    roles: Enforcement = Field(
        Enforcement.AUTO,
        description="what becomes of a call without its role: auto (refused once the own certificate has one), enforce, warn",
    )

    write_cache_bytes: int = Field(64 * MIB, ge=_BYTES_MIN, description="write cache, each of the two halves")
    flush_bytes: int = Field(
        32 * MIB,
        ge=1,
        description="flush the write cache to the store at this size, or from half of it on, drawn each time",
    )
    flush_interval_ms: int = Field(10_000, ge=10, description="and at this age at the latest")
    journal_queue_bytes: int = Field(32 * MIB, ge=_BYTES_MIN, description="frames that wait for the journal")
    journal_file_bytes: int = Field(128 * MIB, ge=_BYTES_MIN, description="size of a journal file")
    store_map_bytes: int | None = Field(
        None, ge=GIB // 8, description="cap of the store's file, if it is not to be the disk's size"
    )
    store_page_cache_bytes: int = Field(
        512 * MIB,
        ge=0,
        description="what was last written to the store stays in the kernel's page cache up to this size; 0: all of it stays",
    )

    streams_max: int = Field(256, ge=1, description="append streams at once; more get RESOURCE_EXHAUSTED")
    read_workers: int = Field(8, ge=1, description="reads at once from cache and store")
    read_answers_bytes: int = Field(
        64 * MIB,
        ge=1,
        description="read answers over the lane that clients have not taken yet: the more there are, the smaller are their messages",
    )
    reads_waiting_max: int = Field(1000, ge=1, description="reads that wait; more get RESOURCE_EXHAUSTED")
    recovery_workers: int = Field(8, ge=1, description="fences and recovery reads at once")
    control_workers: int = Field(8, ge=1, description="control calls at once")
    calls_waiting_max: int = Field(
        1000, ge=1, description="fences, and control calls, that wait; more get RESOURCE_EXHAUSTED"
    )
    call_timeout_ms: int = Field(
        10_000,
        ge=100,
        description="how long a client may take to send a request, and to take a read's answer",
    )
    received_bytes_max: int = Field(
        256 * MIB, ge=_BYTES_MIN, description="messages that were received and wait for journal_queue_bytes"
    )
    attaches_at_once: int = Field(
        128, ge=1, description="ledgers with a new writer whose metadata is read together"
    )
    attaches_waiting_max: int = Field(
        10_000, ge=0, description="new writers that wait for that; more get an answer to try again"
    )
    long_polls_max: int = Field(10_000, ge=0, description="long polls that wait; more are answered at once")
    long_poll_ms_max: int = Field(60_000, ge=1, description="longest wait of a long poll")

    disk_warn_ratio: float = Field(0.90, gt=0, lt=1, description="disk usage that is warned about")
    disk_full_ratio: float = Field(
        0.95, gt=0, lt=1, description="disk usage at which the bookie is read-only"
    )
    disk_low_water_ratio: float = Field(
        0.90, gt=0, lt=1, description="usage below which it is writable again"
    )
    disk_reserve_ratio: float = Field(0.98, gt=0, lt=1, description="usage up to which recovery may write")
    disk_check_ms: int = Field(5_000, ge=10, description="pause between polls of the usage")

    gc_interval_ms: int = Field(60_000, ge=10, description="pause between cycles of garbage collection")
    gc_surplus_interval_ms: int = Field(
        3_600_000,
        ge=10,
        description="pause between searches for replicas that metadata no longer places here",
    )
    scrub_interval_ms: int = Field(86_400_000, ge=10, description="pause between cycles of the scrubber")
    scrub_bytes_per_second: int = Field(4 * MIB, ge=1, description="how fast the scrubber reads")

    stuck_after_ms: int = Field(
        30_000, ge=100, description="a thread without progress for so long is not alive"
    )
    drain_ms: int = Field(10_000, ge=0, description="how long a stopping bookie waits for calls to end")
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")
    log_format: LogFormat = Field(LogFormat.AUTO, description="json, console or auto")

    @field_validator("bookie_id")
    @classmethod
    def _check_id(cls, value: str) -> str:
        return check_bookie_id(value)

    @field_validator("address", "health_address", "metrics_address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        parse_address(value)
        return value

    @field_validator("advertised_ip_address")
    @classmethod
    def _check_ip_address(cls, value: str) -> str:
        return str(ip_address(value)) if value else ""

    @field_validator("plain_address", "lane_address")
    @classmethod
    def _check_other_address(cls, value: str, info: ValidationInfo) -> str:
        if value and not (value == LANE_OFF and info.field_name == "lane_address"):
            parse_address(value)
        return value

    @property
    def lane(self) -> Address | None:
        """Where append streams are served without gRPC; None: nowhere."""
        if self.lane_address == LANE_OFF:
            return None
        return parse_address(self.lane_address or str(Address(parse_address(self.address).host, 0)))

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if not self.disk_low_water_ratio <= self.disk_full_ratio < self.disk_reserve_ratio:
            msg = "need disk_low_water_ratio ≤ disk_full_ratio < disk_reserve_ratio"
            raise ValueError(msg)
        if self.flush_bytes > self.write_cache_bytes:
            msg = f"flush_bytes={self.flush_bytes} is over write_cache_bytes={self.write_cache_bytes}"
            raise ValueError(msg)
        if (self.tls_certificate is None) != (self.tls_key is None):
            msg = "tls_certificate and tls_key go together: set both, or none"
            raise ValueError(msg)
        if self.plain_address and self.tls_certificate is None:
            msg = "plain_address is for a bookie that serves with TLS at its address: set tls_certificate and tls_key, or leave it out"
            raise ValueError(msg)
        if self.tls_ca is not None and self.tls_certificate is None:
            msg = "tls_ca asks clients for certificates, which needs tls_certificate and tls_key"
            raise ValueError(msg)
        if self.roles is Enforcement.ENFORCE and self.tls_ca is None:
            msg = "roles=enforce needs tls_ca: without client certificates nobody has a role"
            raise ValueError(msg)
        return self


def map_bytes_for(file_system_bytes: int) -> int:
    """The size of the store's map if no setting gives one: the volume can grow fourfold without a restart.

    It is address space: LMDB's file grows with what is stored.
    """
    return min(max(_MAP_BYTES_MIN, _MAP_GROWTH * file_system_bytes), _MAP_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """Sizes in bytes. Raises ValueError for values that cannot work together."""

    journal_file_bytes: int = 128 * MIB
    """Of a journal file. Preallocated to this size; removed, or used again, once the store holds all of it."""
    block_bytes: int = FRAME_BYTES_TARGET
    """Small neighbouring frames are merged into blocks up to this size."""
    flush_transaction_bytes: int = 32 * MIB
    """A flush commits at least this often: LMDB keeps a transaction's pages in memory."""
    delete_transaction_blocks: int = 1024
    """A deletion commits after this many blocks."""
    store_map_bytes: int = _MAP_BYTES_MIN
    """The cap of the store's map, address space only; see `map_bytes_for`."""
    store_page_cache_bytes: int = 512 * MIB
    """What was written last stays in the page cache up to this size; 0: all of it stays."""
    store_reserve_bytes: int = 64 * MIB
    """Kept free in the map, so that deletions can always commit."""
    read_overshoot_bytes: int = 16 * 1024
    """A block is sent whole when at most this much of it was not asked for; otherwise it is cut."""

    def __post_init__(self) -> None:
        if self.journal_file_bytes < 2 * MESSAGE_BYTES_MAX:
            msg = f"journal_file_bytes={self.journal_file_bytes}: at least {2 * MESSAGE_BYTES_MAX}, so that any message fits"
            raise ValueError(msg)
        if self.store_reserve_bytes * 2 > self.store_map_bytes:
            msg = (
                f"store_map_bytes={self.store_map_bytes}: at least twice store_reserve_bytes "
                f"({self.store_reserve_bytes}), or nothing could be stored"
            )
            raise ValueError(msg)
        if not 0 < self.block_bytes <= MESSAGE_BYTES_MAX:
            msg = f"block_bytes={self.block_bytes}: between 1 and {MESSAGE_BYTES_MAX}"
            raise ValueError(msg)
        if (
            min(self.flush_transaction_bytes, self.delete_transaction_blocks) < 1
            or self.read_overshoot_bytes < 0
        ):
            msg = (
                "flush_transaction_bytes and delete_transaction_blocks begin at 1, read_overshoot_bytes at 0"
            )
            raise ValueError(msg)
