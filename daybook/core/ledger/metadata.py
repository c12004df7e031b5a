"""Ledger metadata: the one record that every client of a ledger agrees on.

It lives in ZooKeeper as JSON and changes by compare-and-set on its version, so a change is a pure function from one
value to the next. transitions.py judges which changes are legal.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import Any, Final, Self

from daybook.core.errors import MetadataError
from daybook.core.format.stored_record import read_record
from daybook.core.ids import (
    CUSTOM_METADATA_BYTES_MAX,
    NO_ENTRY,
    BookieId,
    EntryId,
    LedgerId,
    check_bookie_id,
    check_integer,
    check_ledger_id,
)
from daybook.core.quorum import Quorum, Stripe, check_quorum, stripe_of

FORMAT_VERSION: Final = 1
DIGEST_TYPE: Final = "CRC32C"

TOPIC_KEY: Final = "daybook/topic"
"""The key of a ledger's custom metadata under which a topic that has the ledger in its list puts its name."""
POOL_KEY: Final = "daybook/pool"
"""The key of a ledger's custom metadata that names the pool whose bookies alone hold the ledger (rule 69)."""


class LedgerState(Enum):
    """Where a ledger is in its life; transitions.py has the ways between these states."""

    OPEN = "OPEN"
    IN_RECOVERY = "IN_RECOVERY"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True)
class Fragment:
    """An ensemble and the first entry it holds; it ends where the next one begins.

    `length_before` is the payload bytes of all entries before `first_entry`, so that the ledger's length is known where
    a fragment has just begun (rule 44).
    """

    first_entry: EntryId
    length_before: int
    bookies: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """A ledger's metadata, checked on construction. `length` is in payload bytes and counts when CLOSED.

    Raises MetadataError for a value that no legal history leads to.
    """

    ledger_id: LedgerId
    quorum: Quorum
    fragments: tuple[Fragment, ...]
    state: LedgerState = LedgerState.OPEN
    last_entry: EntryId = NO_ENTRY
    length: int = 0
    password_hash: str = ""
    writer_token: str | None = None
    custom_metadata: Mapping[str, bytes] = field(default_factory=dict)
    created_at_ms: int = 0
    restored_among: tuple[BookieId, ...] = ()
    """Until the close of a ledger that came back from an export unclosed: the bookies that the cluster had in it (rule 68)."""
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what must hold in every state."""
        fragments = self.fragments
        if not fragments or fragments[0].first_entry != 0 or fragments[0].length_before != 0:
            self._refuse("its first ensemble must begin at entry 0 with length 0")
        for before, after in pairwise(fragments):
            if before.first_entry >= after.first_entry or before.length_before > after.length_before:
                self._refuse("its ensembles must rise in first entry and length")
        for fragment in fragments:
            if len(fragment.bookies) != self.quorum.ensemble_size:
                self._refuse(
                    f"an ensemble needs {self.quorum.ensemble_size} bookies, not {len(fragment.bookies)}"
                )
            if len(set(fragment.bookies)) != len(fragment.bookies):
                self._refuse(f"a bookie is named twice in the ensemble at entry {fragment.first_entry}")
        if self.state is LedgerState.CLOSED and self.last_entry < fragments[-1].first_entry - 1:
            self._refuse(f"it ends at {self.last_entry}, before its last ensemble begins")
        if self.last_entry < NO_ENTRY or self.length < 0:
            self._refuse(f"last entry {self.last_entry} and length {self.length}: the smallest are −1 and 0")

    def _refuse(self, why: str) -> None:
        msg = f"metadata of ledger {self.ledger_id} is not valid: {why}"
        raise MetadataError(msg)

    @property
    def is_closed(self) -> bool:
        """Whether `last_entry` and `length` are final."""
        return self.state is LedgerState.CLOSED

    @property
    def pool(self) -> str:
        """The pool that the ledger stays in (rule 69); "" if it may lie anywhere."""
        return pool_in(self.custom_metadata)

    @property
    def last_fragment(self) -> Fragment:
        """The fragment that is written to while the ledger is open."""
        return self.fragments[-1]

    def fragment_index(self, entry_id: EntryId) -> int:
        """The index of the fragment that holds `entry_id`."""
        assert entry_id >= 0
        index = len(self.fragments) - 1
        while self.fragments[index].first_entry > entry_id:
            index -= 1
        return index

    def fragment_of(self, entry_id: EntryId) -> Fragment:
        """The fragment that holds `entry_id`."""
        return self.fragments[self.fragment_index(entry_id)]

    def fragment_end(self, index: int) -> EntryId | None:
        """The last entry of fragment `index`; None for the last fragment of a ledger that is not closed."""
        if index + 1 < len(self.fragments):
            return self.fragments[index + 1].first_entry - 1
        return self.last_entry if self.is_closed else None

    def bookies(self) -> frozenset[BookieId]:
        """Every bookie that any fragment names."""
        return frozenset(bookie for fragment in self.fragments for bookie in fragment.bookies)

    def stripes_of(self, bookie: BookieId) -> list[tuple[EntryId, EntryId | None, Stripe]]:
        """What `bookie` owes: (first entry, last entry or None while open, stripe) of each fragment that names it."""
        return [
            (
                fragment.first_entry,
                self.fragment_end(index),
                stripe_of(self.quorum, fragment.bookies.index(bookie)),
            )
            for index, fragment in enumerate(self.fragments)
            if bookie in fragment.bookies
        ]

    # Changes: each returns the next value; the caller carries it out as a compare-and-set.

    def attached(self, writer_token: str) -> Self:
        """The one attach for writing (rule 53). Raises MetadataError if there was one or the ledger is not OPEN."""
        if self.state is not LedgerState.OPEN or self.writer_token is not None:
            self._refuse(f"it is {self.state.value} and cannot be attached for writing (rule 53)")
        return replace(self, writer_token=writer_token)

    def with_ensemble(self, first_entry: EntryId, length_before: int, bookies: tuple[BookieId, ...]) -> Self:
        """A new last fragment from `first_entry` on; it replaces the last one if that begins there too (rule 17)."""
        fragment = Fragment(first_entry, length_before, bookies)
        kept = self.fragments[:-1] if self.last_fragment.first_entry == first_entry else self.fragments
        return replace(self, fragments=(*kept, fragment))

    def with_replica(self, first_entry: EntryId, old: BookieId, new: BookieId) -> Self:
        """`new` in the place of `old` in the fragment that begins at `first_entry` (repair; position kept, rule 32)."""
        fragments = tuple(
            replace(fragment, bookies=tuple(new if bookie == old else bookie for bookie in fragment.bookies))
            if fragment.first_entry == first_entry
            else fragment
            for fragment in self.fragments
        )
        return replace(self, fragments=fragments)

    def in_recovery(self) -> Self:
        """The ledger under recovery: the writer's changes are refused from now on."""
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, last_entry: EntryId, length: int) -> Self:
        """The ledger closed for good at `last_entry` with `length` payload bytes."""
        return replace(
            self, state=LedgerState.CLOSED, last_entry=last_entry, length=length, restored_among=()
        )

    # JSON

    def to_json(self) -> bytes:
        """The record as it is stored; unknown fields that were read are written back."""
        record: dict[str, Any] = {
            **self.unknown_fields,
            "formatVersion": FORMAT_VERSION,
            "ledgerId": self.ledger_id,
            "ensembleSize": self.quorum.ensemble_size,
            "writeQuorumSize": self.quorum.write_quorum,
            "ackQuorumSize": self.quorum.ack_quorum,
            "state": self.state.value,
            "length": self.length,
            "lastEntryId": self.last_entry,
            "digestType": DIGEST_TYPE,
            "password": self.password_hash,
            "writerToken": self.writer_token,
            "ensembles": [
                {
                    "firstEntry": fragment.first_entry,
                    "lengthBefore": fragment.length_before,
                    "bookies": list(fragment.bookies),
                }
                for fragment in self.fragments
            ],
            "customMetadata": {
                key: base64.b64encode(value).decode() for key, value in sorted(self.custom_metadata.items())
            },
            "createdAtMs": self.created_at_ms,
        }
        if self.restored_among:
            record["restoredAmong"] = list(self.restored_among)
        return json.dumps(record, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a stored record. Raises MetadataError for anything that `to_json` of a known version cannot make."""
        return read_record(data, "ledger metadata", FORMAT_VERSION, cls._from_record, article="")

    @classmethod
    def _from_record(cls, record: dict[str, Any]) -> Self:
        digest = record.pop("digestType")
        if digest != DIGEST_TYPE:
            msg = f"digest type {digest!r} is not known (known: {DIGEST_TYPE!r})"
            raise MetadataError(msg)
        custom = {
            key: base64.b64decode(value, validate=True) for key, value in record.pop("customMetadata").items()
        }
        token = record.pop("writerToken")
        return cls(
            ledger_id=check_ledger_id(check_integer(record.pop("ledgerId"))),
            quorum=check_quorum(
                check_integer(record.pop("ensembleSize")),
                check_integer(record.pop("writeQuorumSize")),
                check_integer(record.pop("ackQuorumSize")),
            ),
            fragments=tuple(
                Fragment(
                    check_integer(item["firstEntry"]),
                    check_integer(item["lengthBefore"]),
                    tuple(check_bookie_id(bookie) for bookie in item["bookies"]),
                )
                for item in record.pop("ensembles")
            ),
            state=LedgerState(record.pop("state")),
            last_entry=check_integer(record.pop("lastEntryId")),
            length=check_integer(record.pop("length")),
            password_hash=str(record.pop("password")),
            writer_token=None if token is None else str(token),
            custom_metadata=check_custom_metadata(custom),
            created_at_ms=check_integer(record.pop("createdAtMs")),
            restored_among=tuple(check_bookie_id(bookie) for bookie in record.pop("restoredAmong", ())),
            unknown_fields=record,
        )


def pool_in(custom: Mapping[str, bytes]) -> str:
    """The pool that custom metadata names, "" without one. What is no text names a pool that has no bookies."""
    return custom.get(POOL_KEY, b"").decode(errors="replace")


def check_custom_metadata(custom: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return `custom`; raise MetadataError if a value is not bytes, or all are over CUSTOM_METADATA_BYTES_MAX.

    The limit is there because a ZooKeeper node is small.
    """
    for key, value in custom.items():
        if not isinstance(value, bytes):
            msg = f"custom metadata {key!r} is {type(value).__name__}: only bytes are allowed; encode it"
            raise MetadataError(msg)
    size_bytes = sum(len(key.encode()) + len(value) for key, value in custom.items())
    if size_bytes > CUSTOM_METADATA_BYTES_MAX:
        msg = f"custom metadata of {size_bytes} bytes: at most {CUSTOM_METADATA_BYTES_MAX}; store large data as entries"
        raise MetadataError(msg)
    return custom


def hash_password(password: bytes, salt: bytes) -> str:
    """The salted SHA-256 that metadata keeps and clients present: "<salt>$<hash>" in hexadecimal."""
    return f"{salt.hex()}${hashlib.sha256(salt + password).hexdigest()}"


def password_key(password: bytes, stored_hash: str) -> str:
    """What a client with `password` presents to bookies of a ledger whose metadata has `stored_hash`."""
    salt, _, _ = stored_hash.partition("$")
    return hash_password(password, bytes.fromhex(salt))
