"""What offload jobs ask a topic's owner for, at Daybook's own paths: that a run begins, and that the list names its files (rule 70).

A job that restores ledgers asks that the list names copies in place of files (rule 72).
"""

import re
from typing import Any, Final

from aiohttp import web

from daybook.core.errors import MetadataError
from daybook.core.ids import MAX_ID
from daybook.core.topics.offload.changes import OffloadsWritten, WrittenFile
from daybook.core.topics.offload.restore import LedgersRestored, RestoredLedger
from daybook.core.topics.trim_plan import PlannedLedger
from daybook.offload.store import check_uri
from daybook.runtime.clock import unix_ms
from daybook.runtime.logs import get_logger
from daybook_broker.admin.api import Api, BadRequestError, Route, object_of, topic_of
from daybook_broker.admin.known import TOPIC

log = get_logger(__name__)

_JOB: Final = re.compile("[0-9a-f]{16,64}")
RESTORED_MAX: Final = 200
"""Ledgers of one request, whose copies are looked up in one read of metadata (rule 37)."""
_NUMBERS: Final = ("ledgerId", "entries", "size", "formatVersion", "fileSize", "crc")


async def offload(api: Api, request: web.Request) -> None:
    """Begin a run, or name the files that it has written."""
    name, body = topic_of(request), await object_of(request)
    job = _job(body)
    written = _written(job, body) if "ledgers" in body else None
    await api.own(request, name)
    topic = await api.broker.registry.load(name, create=False)
    if written is None:
        await topic.offloads.begin(job)
        log.info("an offload has begun as requested", topic=str(name), job=job)
    else:
        await topic.offloads.name(written)
        ledgers = [file.ledger.ledger_id for file in written.files]
        log.info("files of ledgers were named as requested", topic=str(name), job=job, ledgers=ledgers)


async def restore(api: Api, request: web.Request) -> None:
    """Name the copies of offloaded ledgers in place of their files."""
    name, body = topic_of(request), await object_of(request)
    restored = _restored(_job(body), body)
    await api.own(request, name)
    topic = await api.broker.registry.load(name, create=False)
    await topic.offloads.restore(restored)
    ledgers = [each.ledger.ledger_id for each in restored.ledgers]
    log.info("ledgers were restored as requested", topic=str(name), job=restored.job, ledgers=ledgers)


def _job(body: dict[str, Any]) -> str:
    job = body.get("job")
    if not isinstance(job, str) or not _JOB.fullmatch(job):
        msg = 'the body is to name the run by 16 to 64 digits: {"job": "0123456789abcdef"}'
        raise BadRequestError(msg)
    return job


def _written(job: str, body: dict[str, Any]) -> OffloadsWritten:
    """The files that a body names. Raises BadRequestError, OffloadError for a place that is none."""
    lag_ms = body.get("replicasForMs")
    try:
        if not (lag_ms is None or _is_number(lag_ms)) or not isinstance(body["ledgers"], list):
            raise TypeError
        files = tuple(map(_file, body["ledgers"]))
        if not files:
            raise ValueError
        written = OffloadsWritten(job, files, unix_ms(), lag_ms)
    except (TypeError, KeyError, ValueError, MetadataError) as error:
        msg = (
            'the body is to name files of a run: {"job": "…", "replicasForMs": 14400000, "ledgers": [{"ledgerId": 3, "entries": 10, '
            '"size": 1000, "place": "s3://…", "formatVersion": 1, "fileSize": 900, "crc": 7}]}'
        )
        raise BadRequestError(msg) from error
    for file in files:
        check_uri(file.place)
    return written


def _file(item: dict[str, Any]) -> WrittenFile:
    numbers = [item[name] for name in _NUMBERS]
    if not all(map(_is_number, numbers)) or not isinstance(item["place"], str):
        raise TypeError
    ledger_id, entries, size_bytes, version, file_bytes, crc = numbers
    return WrittenFile(PlannedLedger(ledger_id, entries, size_bytes), item["place"], version, file_bytes, crc)


def _restored(job: str, body: dict[str, Any]) -> LedgersRestored:
    """The copies that a body names. Raises BadRequestError."""
    lag_ms, found = body.get("fileForMs"), body.get("ledgers")
    try:
        if not isinstance(lag_ms, int) or not _is_number(lag_ms) or not isinstance(found, list):
            raise TypeError
        ledgers = tuple(map(_restored_ledger, found))
        copies = [each.stored_as for each in ledgers if each.stored_as is not None]
        if not 0 < len(ledgers) <= RESTORED_MAX or len(set(copies)) < len(copies):
            raise ValueError
    except (TypeError, KeyError, ValueError) as error:
        msg = (
            f'the body is to name 1 to {RESTORED_MAX} restored ledgers: {{"job": "…", "fileForMs": 14400000, "ledgers": [{{"ledgerId": 3, '
            '"entries": 10, "size": 1000, "place": "s3://…", "crc": 7, "storedAs": 9}]}, each copy once, with null for none'
        )
        raise BadRequestError(msg) from error
    return LedgersRestored(job, ledgers, unix_ms(), lag_ms)


def _restored_ledger(item: dict[str, Any]) -> RestoredLedger:
    *planned, crc = numbers = [item[name] for name in ("ledgerId", "entries", "size", "crc")]
    stored_as = item["storedAs"]
    if not all(map(_is_number, numbers)) or not (stored_as is None or _is_number(stored_as)):
        raise TypeError
    if not isinstance(item["place"], str):
        raise TypeError
    return RestoredLedger(PlannedLedger(*planned), item["place"], crc, stored_as)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_ID // 2


ROUTES: Final[tuple[Route, ...]] = (
    ("POST", f"{TOPIC}/offload", offload),
    ("POST", f"{TOPIC}/restore", restore),
)
