"""Payloads of one size that follow each other, as frames bring them: checked together, and cut apart where somebody looks.

Whoever passes many entries on (into a column of Arrow, a file, an answer) needs no object for each. To make one takes longer than to
check it, and a call of the checksum for each payload takes longer than the checksum itself.

**Two checksums of the whole stand for those of all entries (rule 44, ADR 16).** That of the body finds what happened since a bookie
computed it. The other one finds what happened since the writer did, and entries of other ids. The CRC of an entry continues from the CRC
of its ids with its payload. A CRC is linear: to change the four bytes that come next by XOR is to change the state itself. So `are_sound`
changes each payload's first four bytes by the difference between the CRC that the payload before should have and the CRC of this one's
ids, and puts the bytes back afterwards. Then the state is right at a payload if it was right at the one before and that one is sound, and
the last CRC is what it should be if all are. It finds damage within one entry exactly if the entry's own CRC finds it, as each later step
maps different states to different ones. Damage of several entries may cancel out: always where a CRC and the first four bytes of the next
payload have the same difference, which the body's checksum finds.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final, Literal, overload

from crc32c import crc32c

from daybook.core.format.checksums import id_crcs, xor
from daybook.core.format.frame import COLUMN_BYTES, HEADER_BYTES, Buffer, FrameHeader
from daybook.core.ids import LedgerId

COUNT_MIN: Final = 32
"""Of fewer payloads each is cut out and checked by itself in less time."""
SIZE_MAX: Final = 4 * 1024
"""Larger payloads cost more to copy twice than to check one by one."""
_CRC: Final = struct.Struct("<I")


class PayloadRun(Sequence[bytes]):
    """Payloads of `entry_bytes` each. Nobody changes it."""

    __slots__ = ("entry_bytes", "parts")

    def __init__(self, entry_bytes: int, parts: Sequence[Buffer]) -> None:
        """Each of `parts` holds whole payloads behind each other."""
        self.entry_bytes = entry_bytes
        self.parts = parts

    def joined(self) -> Buffer:
        """All of them behind each other."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts)) // self.entry_bytes

    def __iter__(self) -> Iterator[bytes]:
        size = self.entry_bytes
        return chain.from_iterable(_cutter(size, len(part) // size).unpack(part) for part in self.parts)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, int):
            at = range(len(self))[index]
            (payload,) = self._between(at, at + 1)
            return bytes(payload)
        first, end, step = index.indices(len(self))
        return PayloadRun(self.entry_bytes, self._between(first, end)) if step == 1 else tuple(self)[index]

    def _between(self, first: int, end: int) -> list[Buffer]:
        """The payloads [first, end), in parts."""
        begin, stop = first * self.entry_bytes, end * self.entry_bytes
        found: list[Buffer] = []
        for part in self.parts:
            size_bytes = len(part)
            if begin <= 0 and size_bytes <= stop:
                found.append(part)
            elif max(begin, 0) < min(stop, size_bytes):
                found.append(part[max(begin, 0) : stop])
            begin, stop = begin - size_bytes, stop - size_bytes
        return found


def joined_payloads(runs: Sequence[Sequence[bytes]]) -> Sequence[bytes]:
    """All payloads behind each other: one `PayloadRun` if some of `runs` are, and all payloads have one size."""
    sizes = {run.entry_bytes for run in runs if isinstance(run, PayloadRun)}
    if sizes:  # then the others are few payloads: frames that were cut where the range begins or ends
        sizes.update(len(payload) for run in runs if not isinstance(run, PayloadRun) for payload in run)
    if len(sizes) != 1:
        return list(chain.from_iterable(runs))
    parts = chain.from_iterable(run.parts if isinstance(run, PayloadRun) else run for run in runs)
    return PayloadRun(sizes.pop(), list(parts))


def sound_run(
    buffer: Buffer,
    header: FrameHeader,
    offset: int,
    payloads_at: int,
    entry_ids: range,
    *,
    is_own: bool = False,
) -> PayloadRun | None:
    """The payloads at `payloads_at` of the frame at `offset`, if they have one size, and neither body nor entries are damaged.

    They are copied, unless the buffer `is_own`: it can be written to, nobody else looks at it during the call, and nobody changes it
    afterwards while there is a view of it. None of a frame with few entries, with several sizes, or with any damage: the caller then
    checks each entry by itself.
    """
    view, count = memoryview(buffer), header.count
    if count < COUNT_MIN:
        return None
    column = COLUMN_BYTES * count
    lengths = offset + HEADER_BYTES + column
    sizes = view[lengths : lengths + column].tobytes()
    entry_bytes = header.payload_bytes // count
    if entry_bytes * count != header.payload_bytes or not _CRC.size <= entry_bytes <= SIZE_MAX:
        return None
    if sizes != _CRC.pack(entry_bytes) * count:
        return None
    within = view[payloads_at : payloads_at + header.payload_bytes]
    table_end = lengths + 2 * column
    if crc32c(within, crc32c(view[offset + HEADER_BYTES : table_end])) != header.body_crc:
        return None
    crcs = view[lengths + column : table_end].tobytes()
    payloads = within if is_own else bytearray(within)
    if not are_sound(payloads, entry_bytes, header.ledger_id, entry_ids, crcs):
        return None
    return PayloadRun(entry_bytes, [payloads])


def are_sound(
    payloads: bytearray | memoryview, entry_bytes: int, ledger_id: LedgerId, entry_ids: range, crcs: bytes
) -> bool:
    """Whether the payloads of `entry_bytes` (4 or more) fit their checksums in `crcs`, a 32-bit number each, all together.

    Finds any damage of one entry; some of several entries cancels out (see above). `payloads` is changed for the time of the call.
    """
    begins = id_crcs(ledger_id, entry_ids)
    # four bytes in one step where payloads consist of whole fours
    item: Literal["I", "B"] = "B" if entry_bytes % _CRC.size else "I"
    items = memoryview(payloads).cast(item)
    step, count = entry_bytes // items.itemsize, _CRC.size // items.itemsize
    first_bytes = [slice(step + n, None, step) for n in range(count)]
    kept = [items[each].tobytes() for each in first_bytes]
    for n, each in enumerate(first_bytes):
        changed = xor(kept[n], crcs[n : -_CRC.size : count], begins[_CRC.size + n :: count])
        items[each] = memoryview(changed).cast(item)
    found = crc32c(items, int.from_bytes(begins[: _CRC.size], "little"))
    for n, each in enumerate(first_bytes):
        items[each] = memoryview(kept[n]).cast(item)
    return found == int.from_bytes(crcs[-_CRC.size :], "little")


@lru_cache(maxsize=8)
def _cutter(entry_bytes: int, count: int) -> struct.Struct:
    """Cuts payloads apart. To make it takes as long as to cut."""
    return struct.Struct(f"{entry_bytes}s" * count)
