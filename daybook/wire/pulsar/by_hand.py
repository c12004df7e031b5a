"""SEND, SEND_RECEIPT and MESSAGE without protobuf, because a broker handles one of each for every entry.

Protobuf costs about a microsecond to read or to build a command, and building the objects of its fields costs more. What is
written here is what protobuf writes, byte for byte; what is read here is what protobuf reads. What is rare (transactions,
chunks, markers, a shadow topic's ids) is left to protobuf: `parse_send` returns None for it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from daybook.core.ids import EntryId, LedgerId
from daybook.wire.pulsar.frames import frame_head

NO_PARTITION: Final = -1

Send: TypeAlias = tuple[int, int, int, int]
"""A SEND: producer id, sequence id, number of messages, and the sequence id of the last message of a batch, 0 if not sent."""

# A tag is a field's number, shifted by three, and its wire type: 0 a number, 2 bytes behind their length.
_RECEIPT_HEAD: Final = b"\x08\x07\x3a"  # type: SEND_RECEIPT; send_receipt
_MESSAGE_HEAD: Final = b"\x08\x09\x4a"  # type: MESSAGE; message

_NUMBER: Final = rb"([\x80-\xff]{0,8}[\x00-\x7f])"
_plain_send: Final = re.compile(
    rb"\x08\x06\x32([\x00-\x7f])\x08"
    + _NUMBER
    + rb"\x10"
    + _NUMBER
    + rb"(?:\x18"
    + _NUMBER
    + rb")?(?:\x30"
    + _NUMBER
    + rb")?",
).fullmatch
"""Type SEND, the size of `send`, and its fields in the order in which every client writes them. A loop over them takes twice as long."""

_INT32_MAX: Final = 2**31 - 1
_UINT64: Final = 2**64 - 1

_SHORT: Final = tuple(bytes([number]) for number in range(0x80))
"""The numbers that take one byte."""
_MORE: Final = tuple(bytes([number | 0x80]) for number in range(0x80))
"""The groups of a number that others follow."""


def parse_send(command: bytes) -> Send | None:
    """The command if it is a SEND with these four fields alone, in order; None leaves it to protobuf, whatever it is."""
    found = _plain_send(command)
    if found is None:
        return None
    size, producer_id, sequence_id, num_messages, highest_sequence_id = found.groups()
    count = 1 if num_messages is None else _number(num_messages)
    if size[0] != len(command) - 4 or count > _INT32_MAX:
        return None
    return (
        _number(producer_id),
        _number(sequence_id),
        count,
        0 if highest_sequence_id is None else _number(highest_sequence_id),
    )


def _number(varint: bytes) -> int:
    """The inverse of `_varint`."""
    size_bytes = len(varint)
    if size_bytes == 1:
        return varint[0]
    if size_bytes == 2:
        return varint[0] & 0x7F | varint[1] << 7
    if size_bytes == 3:
        return varint[0] & 0x7F | (varint[1] & 0x7F) << 7 | varint[2] << 14
    number = 0
    for byte in reversed(varint):
        number = number << 7 | byte & 0x7F
    return number


ReceiptEncoder: TypeAlias = Callable[[int, EntryId, int], bytes]
"""Makes the whole frame of a SEND_RECEIPT of a sequence id, an entry id and a highest sequence id."""


def receipt_encoder(producer_id: int, ledger_id: LedgerId) -> ReceiptEncoder:
    """Encodes the receipts of one producer for entries of one ledger, of which many follow each other.

    A client that did not send a highest sequence id gets none (0).
    """
    producer = b"\x08" + _varint(producer_id) + b"\x10"
    ledger = b"\x08" + _varint(ledger_id) + b"\x10"
    ledger_bytes = len(ledger)

    def encode(sequence_id: int, entry_id: EntryId, highest_sequence_id: int) -> bytes:
        entry = _varint(entry_id)
        message_id = b"\x1a" + _SHORT[ledger_bytes + len(entry)] + ledger + entry
        body = producer + _varint(sequence_id) + message_id
        if highest_sequence_id:
            body += b"\x20" + _varint(highest_sequence_id)
        return frame_head(_RECEIPT_HEAD + _SHORT[len(body)] + body, 0)

    return encode


def encode_send_receipt(
    producer_id: int, sequence_id: int, ledger_id: LedgerId, entry_id: EntryId, highest_sequence_id: int = 0
) -> bytes:
    """The whole frame of a SEND_RECEIPT. A client that did not send `highest_sequence_id` gets none (0)."""
    return receipt_encoder(producer_id, ledger_id)(sequence_id, entry_id, highest_sequence_id)


def encode_message_head(
    consumer_id: int,
    ledger_id: LedgerId,
    entry_id: EntryId,
    entry_bytes: int,
    *,
    partition: int = NO_PARTITION,
    redelivery_count: int = 0,
    ack_set: Sequence[int] = (),
    consumer_epoch: int | None = None,
) -> bytes:
    """All of the frame of a MESSAGE that comes before the entry of `entry_bytes`.

    `ack_set` are words of 64 bits, as signed numbers: a set bit is a message of the batch that the consumer has not acknowledged.
    """
    message_id = b"\x08" + _varint(ledger_id) + b"\x10" + _varint(entry_id)
    if partition != NO_PARTITION:
        message_id += b"\x18" + _varint(partition)
    body = b"\x08" + _varint(consumer_id) + b"\x12" + _SHORT[len(message_id)] + message_id
    if redelivery_count:
        body += b"\x18" + _varint(redelivery_count)
    for word in ack_set:
        body += b"\x20" + _varint(word & _UINT64)
    if consumer_epoch is not None:
        body += b"\x28" + _varint(consumer_epoch)
    return frame_head(_MESSAGE_HEAD + _varint(len(body)) + body, entry_bytes)


def _varint(number: int) -> bytes:
    """`number` ≥ 0 in groups of seven bits, the lowest first, each but the last with its highest bit set."""
    if number < 0x80:
        return _SHORT[number]
    if number < 0x4000:
        return _MORE[number & 0x7F] + _SHORT[number >> 7]
    if number < 0x200000:
        return _MORE[number & 0x7F] + _MORE[number >> 7 & 0x7F] + _SHORT[number >> 14]
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)
