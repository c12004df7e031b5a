"""Which writer the options of `df.write` and `df.writeStream` ask for, checked before the first task starts."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from daybook.core.quorum import check_quorum
from daybook_spark.access import open_client
from daybook_spark.brokers import service_url
from daybook_spark.options import OptionError, Where, parse_all, where_of
from daybook_spark.write.entries import check_only_value
from daybook_spark.write.ledgers import LedgersStreamWriter, LedgersWriter, Replication, Writing
from daybook_spark.write.topic import TopicStreamWriter, TopicTarget, TopicWriter, topic_target

_OF_SPARK: Final = frozenset({"checkpointlocation", "path"})
"""Options of a stream that Spark passes on, and reads itself."""
_REPLICATION: Final = ("ensembleSize", "writeQuorum", "ackQuorum")


def batch_writer(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """The writer of a DataFrame. Raises OptionError, and what an unreachable cluster raises."""
    values = parse_all(options, "df.write", lambda kind: kind.writes)
    if "manifest" in values:
        return LedgersWriter(_writing(values, schema), overwrite=overwrite)
    if overwrite:
        msg = "a topic cannot be overwritten: use mode append, or write to a manifest"
        raise OptionError(msg)
    return TopicWriter(_target(values, schema))


def stream_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceStreamWriter:
    """The writer of a stream. Raises as `batch_writer`."""
    own = {key: text for key, text in options.items() if key.lower() not in _OF_SPARK}
    values = parse_all(own, "df.writeStream", lambda kind: kind.writes)
    if overwrite:
        msg = "a stream appends: use the output mode append"
        raise OptionError(msg)
    if "manifest" in values:
        return LedgersStreamWriter(_writing(values, schema))
    return TopicStreamWriter(_target(values, schema))


def _writing(values: Mapping[str, Any], schema: StructType) -> Writing:
    if "topic" in values or "serviceUrl" in values:
        msg = "where to write? Give one of the options manifest and topic; serviceUrl belongs to topic"
        raise OptionError(msg)
    check_only_value(schema)
    sizes = [values.get(name, default) for name, default in zip(_REPLICATION, Replication(), strict=True)]
    check_quorum(*sizes)
    return Writing.begin(where_of(values), values["manifest"], Replication(*sizes))


def _target(values: Mapping[str, Any], schema: StructType) -> TopicTarget:
    topics = values.get("topic", ())
    if len(topics) != 1 or any(name in values for name in _REPLICATION):
        msg = (
            "where to write? Give one of the options manifest and topic, and one topic alone; "
            f"{', '.join(_REPLICATION)} belong to manifest"
        )
        raise OptionError(msg)
    where = where_of(values)
    return topic_target(
        where, topics[0], values.get("serviceUrl") or asyncio.run(_service_url(where)), schema
    )


async def _service_url(where: Where) -> str:
    async with open_client(where) as client:
        return await service_url(client, where, ": start one, or give the option serviceUrl")
