from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Purpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PURPOSE_WRITE: _ClassVar[Purpose]
    PURPOSE_RECOVERY: _ClassVar[Purpose]
PURPOSE_WRITE: Purpose
PURPOSE_RECOVERY: Purpose

class ClientControl(_message.Message):
    __slots__ = ("hello", "attach", "detach")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    hello: ClientHello
    attach: Attach
    detach: Detach
    def __init__(self, hello: _Optional[_Union[ClientHello, _Mapping]] = ..., attach: _Optional[_Union[Attach, _Mapping]] = ..., detach: _Optional[_Union[Detach, _Mapping]] = ...) -> None: ...

class ClientHello(_message.Message):
    __slots__ = ("client",)
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    client: str
    def __init__(self, client: _Optional[str] = ...) -> None: ...

class Attach(_message.Message):
    __slots__ = ("ledger_id", "key", "purpose")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    key: str
    purpose: Purpose
    def __init__(self, ledger_id: _Optional[int] = ..., key: _Optional[str] = ..., purpose: _Optional[_Union[Purpose, str]] = ...) -> None: ...

class Detach(_message.Message):
    __slots__ = ("ledger_id", "purpose")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    purpose: Purpose
    def __init__(self, ledger_id: _Optional[int] = ..., purpose: _Optional[_Union[Purpose, str]] = ...) -> None: ...

class ServerControl(_message.Message):
    __slots__ = ("hello", "attached", "ended")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    hello: ServerHello
    attached: Attached
    ended: Ended
    def __init__(self, hello: _Optional[_Union[ServerHello, _Mapping]] = ..., attached: _Optional[_Union[Attached, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ...) -> None: ...

class ServerHello(_message.Message):
    __slots__ = ("bookie_id", "boot_id", "message_bytes_max", "lane_address", "takes_lac_tables", "takes_detach")
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    LANE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TAKES_LAC_TABLES_FIELD_NUMBER: _ClassVar[int]
    TAKES_DETACH_FIELD_NUMBER: _ClassVar[int]
    bookie_id: str
    boot_id: str
    message_bytes_max: int
    lane_address: str
    takes_lac_tables: bool
    takes_detach: bool
    def __init__(self, bookie_id: _Optional[str] = ..., boot_id: _Optional[str] = ..., message_bytes_max: _Optional[int] = ..., lane_address: _Optional[str] = ..., takes_lac_tables: _Optional[bool] = ..., takes_detach: _Optional[bool] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("detail",)
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    detail: str
    def __init__(self, detail: _Optional[str] = ...) -> None: ...

class Attached(_message.Message):
    __slots__ = ("ledger_id", "purpose", "code", "detail")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    purpose: Purpose
    code: int
    detail: str
    def __init__(self, ledger_id: _Optional[int] = ..., purpose: _Optional[_Union[Purpose, str]] = ..., code: _Optional[int] = ..., detail: _Optional[str] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("ledger_id", "first_entry", "last_entry", "bytes_max", "key", "fence", "payloads_last")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    PAYLOADS_LAST_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    first_entry: int
    last_entry: int
    bytes_max: int
    key: str
    fence: bool
    payloads_last: bool
    def __init__(self, ledger_id: _Optional[int] = ..., first_entry: _Optional[int] = ..., last_entry: _Optional[int] = ..., bytes_max: _Optional[int] = ..., key: _Optional[str] = ..., fence: _Optional[bool] = ..., payloads_last: _Optional[bool] = ...) -> None: ...

class ReadLacRequest(_message.Message):
    __slots__ = ("ledger_id", "known_lac", "timeout_ms", "key", "known_fenced")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    KNOWN_LAC_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FENCED_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    known_lac: int
    timeout_ms: int
    key: str
    known_fenced: bool
    def __init__(self, ledger_id: _Optional[int] = ..., known_lac: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., key: _Optional[str] = ..., known_fenced: _Optional[bool] = ...) -> None: ...

class ReadLacResponse(_message.Message):
    __slots__ = ("code", "last_add_confirmed", "length_at_lac", "limbo", "fenced")
    CODE_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LENGTH_AT_LAC_FIELD_NUMBER: _ClassVar[int]
    LIMBO_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    code: int
    last_add_confirmed: int
    length_at_lac: int
    limbo: bool
    fenced: bool
    def __init__(self, code: _Optional[int] = ..., last_add_confirmed: _Optional[int] = ..., length_at_lac: _Optional[int] = ..., limbo: _Optional[bool] = ..., fenced: _Optional[bool] = ...) -> None: ...

class FenceRequest(_message.Message):
    __slots__ = ("ledger_id", "key")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    key: str
    def __init__(self, ledger_id: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class FenceResponse(_message.Message):
    __slots__ = ("code", "last_add_confirmed", "length_at_lac", "limbo", "detail")
    CODE_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LENGTH_AT_LAC_FIELD_NUMBER: _ClassVar[int]
    LIMBO_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    code: int
    last_add_confirmed: int
    length_at_lac: int
    limbo: bool
    detail: str
    def __init__(self, code: _Optional[int] = ..., last_add_confirmed: _Optional[int] = ..., length_at_lac: _Optional[int] = ..., limbo: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...

class RecoverRequest(_message.Message):
    __slots__ = ("fences", "reads")
    FENCES_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    fences: _containers.RepeatedCompositeFieldContainer[FenceRequest]
    reads: _containers.RepeatedCompositeFieldContainer[ReadRequest]
    def __init__(self, fences: _Optional[_Iterable[_Union[FenceRequest, _Mapping]]] = ..., reads: _Optional[_Iterable[_Union[ReadRequest, _Mapping]]] = ...) -> None: ...

class RecoverResponse(_message.Message):
    __slots__ = ("fences", "reads")
    FENCES_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    fences: _containers.RepeatedCompositeFieldContainer[FenceResponse]
    reads: _containers.RepeatedCompositeFieldContainer[RecoveryRead]
    def __init__(self, fences: _Optional[_Iterable[_Union[FenceResponse, _Mapping]]] = ..., reads: _Optional[_Iterable[_Union[RecoveryRead, _Mapping]]] = ...) -> None: ...

class RecoveryRead(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, messages: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ForceRequest(_message.Message):
    __slots__ = ("ledger_id", "key")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    key: str
    def __init__(self, ledger_id: _Optional[int] = ..., key: _Optional[str] = ...) -> None: ...

class ForceResponse(_message.Message):
    __slots__ = ("code", "boot_id")
    CODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    code: int
    boot_id: str
    def __init__(self, code: _Optional[int] = ..., boot_id: _Optional[str] = ...) -> None: ...

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ("bookie_id", "boot_id", "version", "writable", "read_only_reason", "capacity_bytes", "free_bytes", "ledgers", "write_cache_bytes", "journal_bytes", "streams", "rss_anon_bytes", "limbo_ledgers", "collection_refused", "highest_ledger", "disk_notice")
    BOOKIE_ID_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_REASON_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    WRITE_CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    RSS_ANON_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMBO_LEDGERS_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_REFUSED_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_LEDGER_FIELD_NUMBER: _ClassVar[int]
    DISK_NOTICE_FIELD_NUMBER: _ClassVar[int]
    bookie_id: str
    boot_id: str
    version: str
    writable: bool
    read_only_reason: str
    capacity_bytes: int
    free_bytes: int
    ledgers: int
    write_cache_bytes: int
    journal_bytes: int
    streams: int
    rss_anon_bytes: int
    limbo_ledgers: int
    collection_refused: str
    highest_ledger: int
    disk_notice: str
    def __init__(self, bookie_id: _Optional[str] = ..., boot_id: _Optional[str] = ..., version: _Optional[str] = ..., writable: _Optional[bool] = ..., read_only_reason: _Optional[str] = ..., capacity_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., ledgers: _Optional[int] = ..., write_cache_bytes: _Optional[int] = ..., journal_bytes: _Optional[int] = ..., streams: _Optional[int] = ..., rss_anon_bytes: _Optional[int] = ..., limbo_ledgers: _Optional[int] = ..., collection_refused: _Optional[str] = ..., highest_ledger: _Optional[int] = ..., disk_notice: _Optional[str] = ...) -> None: ...

class ListLedgersRequest(_message.Message):
    __slots__ = ("after_ledger", "limit")
    AFTER_LEDGER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    after_ledger: int
    limit: int
    def __init__(self, after_ledger: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListLedgersResponse(_message.Message):
    __slots__ = ("ledger_ids", "more")
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    more: bool
    def __init__(self, ledger_ids: _Optional[_Iterable[int]] = ..., more: _Optional[bool] = ...) -> None: ...

class EntryIntervalsRequest(_message.Message):
    __slots__ = ("ledger_id", "from_entry", "limit")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    FROM_ENTRY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    from_entry: int
    limit: int
    def __init__(self, ledger_id: _Optional[int] = ..., from_entry: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class EntryInterval(_message.Message):
    __slots__ = ("first_entry", "last_entry", "stripe_period", "stripe_mask")
    FIRST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    LAST_ENTRY_FIELD_NUMBER: _ClassVar[int]
    STRIPE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    STRIPE_MASK_FIELD_NUMBER: _ClassVar[int]
    first_entry: int
    last_entry: int
    stripe_period: int
    stripe_mask: int
    def __init__(self, first_entry: _Optional[int] = ..., last_entry: _Optional[int] = ..., stripe_period: _Optional[int] = ..., stripe_mask: _Optional[int] = ...) -> None: ...

class EntryIntervalsResponse(_message.Message):
    __slots__ = ("code", "intervals", "more", "limbo", "damaged", "last_add_confirmed", "length_at_lac")
    CODE_FIELD_NUMBER: _ClassVar[int]
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    LIMBO_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    LAST_ADD_CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LENGTH_AT_LAC_FIELD_NUMBER: _ClassVar[int]
    code: int
    intervals: _containers.RepeatedCompositeFieldContainer[EntryInterval]
    more: bool
    limbo: bool
    damaged: _containers.RepeatedScalarFieldContainer[int]
    last_add_confirmed: int
    length_at_lac: int
    def __init__(self, code: _Optional[int] = ..., intervals: _Optional[_Iterable[_Union[EntryInterval, _Mapping]]] = ..., more: _Optional[bool] = ..., limbo: _Optional[bool] = ..., damaged: _Optional[_Iterable[int]] = ..., last_add_confirmed: _Optional[int] = ..., length_at_lac: _Optional[int] = ...) -> None: ...

class SetReadOnlyRequest(_message.Message):
    __slots__ = ("read_only", "reason")
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    read_only: bool
    reason: str
    def __init__(self, read_only: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class SetReadOnlyResponse(_message.Message):
    __slots__ = ("writable", "read_only_reason")
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_REASON_FIELD_NUMBER: _ClassVar[int]
    writable: bool
    read_only_reason: str
    def __init__(self, writable: _Optional[bool] = ..., read_only_reason: _Optional[str] = ...) -> None: ...

class ScrubRequest(_message.Message):
    __slots__ = ("ledger_id",)
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    def __init__(self, ledger_id: _Optional[int] = ...) -> None: ...

class ScrubResponse(_message.Message):
    __slots__ = ("code", "ledgers", "entries", "damaged")
    CODE_FIELD_NUMBER: _ClassVar[int]
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    code: int
    ledgers: int
    entries: int
    damaged: _containers.RepeatedCompositeFieldContainer[DamagedLedger]
    def __init__(self, code: _Optional[int] = ..., ledgers: _Optional[int] = ..., entries: _Optional[int] = ..., damaged: _Optional[_Iterable[_Union[DamagedLedger, _Mapping]]] = ...) -> None: ...

class DamagedLedger(_message.Message):
    __slots__ = ("ledger_id", "entries")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    entries: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ledger_id: _Optional[int] = ..., entries: _Optional[_Iterable[int]] = ...) -> None: ...

class ListLimboRequest(_message.Message):
    __slots__ = ("after_ledger", "limit", "only")
    AFTER_LEDGER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ONLY_FIELD_NUMBER: _ClassVar[int]
    after_ledger: int
    limit: int
    only: bool
    def __init__(self, after_ledger: _Optional[int] = ..., limit: _Optional[int] = ..., only: _Optional[bool] = ...) -> None: ...

class LimboLedger(_message.Message):
    __slots__ = ("ledger_id", "nonce")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    nonce: str
    def __init__(self, ledger_id: _Optional[int] = ..., nonce: _Optional[str] = ...) -> None: ...

class ListLimboResponse(_message.Message):
    __slots__ = ("ledgers", "more", "boot_id")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    ledgers: _containers.RepeatedCompositeFieldContainer[LimboLedger]
    more: bool
    boot_id: str
    def __init__(self, ledgers: _Optional[_Iterable[_Union[LimboLedger, _Mapping]]] = ..., more: _Optional[bool] = ..., boot_id: _Optional[str] = ...) -> None: ...

class ClearLimboRequest(_message.Message):
    __slots__ = ("ledger_id", "nonce")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    nonce: str
    def __init__(self, ledger_id: _Optional[int] = ..., nonce: _Optional[str] = ...) -> None: ...

class ClearLimboResponse(_message.Message):
    __slots__ = ("code", "cleared")
    CODE_FIELD_NUMBER: _ClassVar[int]
    CLEARED_FIELD_NUMBER: _ClassVar[int]
    code: int
    cleared: bool
    def __init__(self, code: _Optional[int] = ..., cleared: _Optional[bool] = ...) -> None: ...

class CollectGarbageRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CollectGarbageResponse(_message.Message):
    __slots__ = ("code", "deleted", "detail", "surplus_entries")
    CODE_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SURPLUS_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    code: int
    deleted: _containers.RepeatedScalarFieldContainer[int]
    detail: str
    surplus_entries: int
    def __init__(self, code: _Optional[int] = ..., deleted: _Optional[_Iterable[int]] = ..., detail: _Optional[str] = ..., surplus_entries: _Optional[int] = ...) -> None: ...

class AcceptRollBackRequest(_message.Message):
    __slots__ = ("highest_ledger",)
    HIGHEST_LEDGER_FIELD_NUMBER: _ClassVar[int]
    highest_ledger: int
    def __init__(self, highest_ledger: _Optional[int] = ...) -> None: ...

class AcceptRollBackResponse(_message.Message):
    __slots__ = ("accepted", "detail")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    detail: str
    def __init__(self, accepted: _Optional[bool] = ..., detail: _Optional[str] = ...) -> None: ...
