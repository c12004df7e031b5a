"""Damage that knows a little of what it damages: edits of a good sample, and checksums made right again afterwards.

Random bytes are refused by the first checksum; what lies behind it is reached by sealing the damaged sample anew. An
edit is ten bytes, so that hypothesis can shrink a list of them and a coverage-guided fuzzer can evolve it.
"""

import json
import struct
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple

_EDIT: Final = struct.Struct("<BBIi")
EDIT_BYTES: Final = _EDIT.size
EDITS_MAX: Final = 12
GROWN_BYTES_MAX: Final = 64 * 1024
INTERESTING: Final = (
    0,
    1,
    -1,
    2,
    63,
    64,
    65,
    255,
    4096,
    16_384,
    16_385,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    -(2**63),
)
_ODD_VALUES: Final[tuple[Any, ...]] = (
    *INTERESTING,
    10**30,
    None,
    True,
    1.5,
    float("nan"),
    "",
    "a/b",
    "\ud800",
    "CLOSED",
    "9" * 300,
    [],
    {},
    [[]],
    {"": None},
)


class Edit(NamedTuple):
    """One change: what, in which field-like grid, where, and how much or which value."""

    kind: int
    grid: int
    where: int
    value: int


def unpack_edits(data: bytes) -> list[Edit]:
    """Edits from a fuzzer's bytes; what is left over is ignored."""
    whole = len(data) // EDIT_BYTES * EDIT_BYTES
    return [Edit(*fields) for fields in _EDIT.iter_unpack(data[:whole])][:EDITS_MAX]


def mutate(sample: bytes, edits: Sequence[Edit]) -> bytes:
    """The sample with the edits made in order."""
    data = bytearray(sample)
    for edit in edits:
        _KINDS[edit.kind % len(_KINDS)](data, _position(data, edit), edit.value)
        del data[GROWN_BYTES_MAX:]
    return bytes(data)


def mutate_json(sample: bytes, edits: Sequence[Edit]) -> bytes:
    """The document with values replaced, removed or nested by others."""
    document = json.loads(sample)
    for edit in edits:
        holders = list(_holders(document))
        holder, key = holders[edit.where % len(holders)]
        value = deepcopy(_ODD_VALUES[edit.value % len(_ODD_VALUES)])
        if edit.kind % 4 == 0:
            del holder[key]
        elif edit.kind % 4 == 1:
            holder[key] = [holder[key], value]
        else:
            holder[key] = value
        if not document:
            break
    return json.dumps(document).encode()


def nested(depth: int) -> bytes:
    """A document as deep as that."""
    return b"[" * depth + b"]" * depth


def _holders(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) of a document."""
    keys: Sequence[Any] = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    found = [(value, key) for key in keys]
    for key in keys:
        found += _holders(value[key])
    return found


def _position(data: bytearray, edit: Edit) -> int:
    """Mostly in the first bytes and aligned, where the fields are."""
    if not data:
        return 0
    if edit.grid % 4 == 0:
        return edit.where % len(data)
    reach = min(len(data), 128)
    width = (1, 4, 8)[edit.grid % 4 - 1]
    return edit.where % reach // width * width


def _flip(data: bytearray, at: int, value: int) -> None:
    if data:
        data[at] ^= 1 << value % 8


def _byte(data: bytearray, at: int, value: int) -> None:
    data[at : at + 1] = bytes([value % 256])


def _word(data: bytearray, at: int, value: int) -> None:
    number = INTERESTING[value % len(INTERESTING)] % 2**32
    data[at : at + 4] = struct.pack("<I", number)


def _long(data: bytearray, at: int, value: int) -> None:
    data[at : at + 8] = struct.pack("<q", INTERESTING[value % len(INTERESTING)])


def _near(data: bytearray, at: int, value: int) -> None:
    """A little more or less than what is there."""
    if at + 4 <= len(data):
        (number,) = struct.unpack_from("<I", data, at)
        struct.pack_into("<I", data, at, (number + value % 7 - 3) % 2**32)


def _truncate(data: bytearray, at: int, value: int) -> None:
    del data[at:]


def _delete(data: bytearray, at: int, value: int) -> None:
    del data[at : at + value % 64 + 1]


def _double(data: bytearray, at: int, value: int) -> None:
    data[at:at] = data[at : at + value % 256 + 1]


def _repeat(data: bytearray, at: int, value: int) -> None:
    data += bytes(data) * (value % 4)


def _insert(data: bytearray, at: int, value: int) -> None:
    data[at:at] = struct.pack("<i", value)


_KINDS: Final[tuple[Callable[[bytearray, int, int], None], ...]] = (
    _flip,
    _byte,
    _word,
    _long,
    _near,
    _truncate,
    _delete,
    _double,
    _repeat,
    _insert,
)


def mutate_document(sample: bytes, edits: list[Edit]) -> bytes:
    """Some as JSON, some as text."""
    if edits and edits[0].grid % 3:
        return mutate_json(sample, edits)
    return mutate(sample, edits)
