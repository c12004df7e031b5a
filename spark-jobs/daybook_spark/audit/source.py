"""The audit as a data source: planning is its `partitions`, and a task reads the copies of one piece.

`daybook spark audit` is the way to run it; a notebook may read `daybook_audit` like any other source.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from daybook.client.placement_settings import placement_policy
from daybook_spark.access import detached_client, open_client
from daybook_spark.audit import plan
from daybook_spark.audit.check import SCHEMA, Row, check_piece
from daybook_spark.audit.pace import Pace
from daybook_spark.audit.plan import AuditPiece
from daybook_spark.options import OptionError, Where, parse_all, where_of

NAME: Final = "daybook_audit"
PIECE_BYTES: Final = "pieceBytes"
BYTES_PER_SECOND: Final = "bytesPerSecond"
TASKS: Final = "tasks"


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What an audit is asked for. All tasks together read at most `bytes_per_second` from a bookie; 0: as fast as it gives."""

    where: Where
    piece_bytes: int = plan.PIECE_BYTES
    bytes_per_second: int = 0
    tasks: int = 1
    """How many tasks run at a time: each has its share of the limit."""


def parse_audit(options: Mapping[str, str]) -> AuditOptions:
    """The options of `daybook_audit`. Raises OptionError."""
    own = {name: options[name] for name in (PIECE_BYTES, BYTES_PER_SECOND, TASKS) if name in options}
    rest = {key: text for key, text in options.items() if key.lower() not in {name.lower() for name in own}}
    numbers = {name: _whole(name, text) for name, text in own.items()}
    return AuditOptions(
        where_of(parse_all(rest, f"spark.read of {NAME}", lambda kind: kind.writes)),
        max(1, numbers.get(PIECE_BYTES, plan.PIECE_BYTES)),
        numbers.get(BYTES_PER_SECOND, 0),
        max(1, numbers.get(TASKS, 1)),
    )


def _whole(name: str, text: str) -> int:
    if not text.isdecimal():
        msg = f"option {name} = {text[:200]!r}: a whole number from 0 on"
        raise OptionError(msg)
    return int(text)


class AuditSource(DataSource):
    """`spark.read.format("daybook_audit")`, once it is registered; see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """See DataSource."""
        return NAME

    def schema(self) -> str:
        """A row for each range of entries and each bookie that owes them."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """See DataSource. Raises OptionError."""
        del schema
        return AuditReader(parse_audit(self.options))


class AuditReader(DataSourceReader):
    """Plans in the driver, reads in tasks."""

    def __init__(self, options: AuditOptions) -> None:
        """Nothing is planned yet."""
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The pieces; one without ranges where there is nothing to read."""
        return asyncio.run(_plan(self._options)) or [AuditPiece((), {})]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """The rows of one piece."""
        assert isinstance(partition, AuditPiece)
        return iter(asyncio.run(_check(partition, self._options)))


async def _plan(options: AuditOptions) -> list[AuditPiece]:
    async with open_client(options.where, placement=placement_policy()) as client:
        return await plan.plan_audit(client, options.piece_bytes)


async def _check(piece: AuditPiece, options: AuditOptions) -> list[Row]:
    client = detached_client(options.where)
    client.learn(piece.bookies)
    pace = Pace(options.bytes_per_second / options.tasks, asyncio.get_running_loop().time)
    try:
        return [row async for row in check_piece(piece, client.channels, pace)]
    finally:
        await client.close()
