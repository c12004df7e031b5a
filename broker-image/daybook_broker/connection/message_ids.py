"""Positions as the protocol has them: unsigned numbers, where −1 is the largest one."""

from typing import Final

from daybook.core.topics.ledger_list import Position
from daybook.wire.pulsar.pulsar_pb2 import MessageIdData

_UINT64: Final = 2**64
_INT64_MAX: Final = 2**63 - 1


def position_of(message_id: MessageIdData) -> Position:
    """A position as clients send it: signed numbers, of which −1 is the beginning and the largest the end.

    Entry −1 of a ledger also stands for what is before its entry 0, where a client acknowledges the messages before those of a batch.
    """
    return Position(
        *(each - _UINT64 if each > _INT64_MAX else each for each in (message_id.ledgerId, message_id.entryId))
    )


def message_id_of(position: Position) -> MessageIdData:
    """A position for a client."""
    return MessageIdData(ledgerId=position.ledger_id % _UINT64, entryId=position.entry_id % _UINT64)
