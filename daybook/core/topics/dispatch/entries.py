"""An entry as a subscription delivers it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from daybook.core.format.frame import Buffer
from daybook.core.topics.ledger_list import Position

_WORD_MASK: Final = (1 << 64) - 1


class TopicEntry(NamedTuple):
    """An entry of a topic. `messages` is how many a batch has, 1 for any other entry; permits count messages."""

    position: Position
    data: Buffer
    messages: int


def messages_left(ack_set: Sequence[int]) -> int:
    """How many messages of a batch are not acknowledged: the bits that are set in its words, which are signed."""
    return sum((word & _WORD_MASK).bit_count() for word in ack_set)
