"""The cursor of a reader: kept nowhere, and nothing waits for it. It ends with its consumer, who knows where to begin the next time."""

from daybook.core.topics.acks import AckState
from daybook.core.topics.cursor_record import CursorRecord
from daybook.core.topics.extent import TopicExtent
from daybook.core.topics.ledger_list import Position


class ReaderCursor:
    """What a reader has acknowledged, in memory."""

    def __init__(self, extent: TopicExtent, mark_delete: Position) -> None:
        """Begin behind `mark_delete`."""
        self.acks = AckState(extent, CursorRecord(mark_delete))

    async def flush(self) -> None:
        """Nothing is to be stored."""
