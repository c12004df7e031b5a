"""A broker's reads of files: within a bound in bytes, shared by readers, and opened anew after an error (rule 70)."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from daybook_broker.metrics import FILE_FAILURES
from daybook_broker.topics import offloaded_files
from daybook_broker.topics.offloaded_files import FILES_MAX, OffloadedFiles, OffloadedReader
from daybook_broker.topics.tail_cache import ENTRY_COST_BYTES

from daybook.offload import format as file_format
from daybook.offload.errors import OffloadError, OffloadFileError, OffloadMissingError
from daybook.offload.reading import EntriesFile
from daybook.offload.writing import WrittenEntries
from tests.unit.offload.kit import entries_of, write

PAYLOADS = [bytes([number]) * 1_000 for number in range(10)]
GROUP_COST = 2 * (1_000 + ENTRY_COST_BYTES)
TIMEOUT_S = 20.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of five row groups of two entries."""
    monkeypatch.setattr(file_format, "ROW_GROUP_ENTRIES", 2)
    uri = f"file://{tmp_path}/seven.parquet"
    write(uri, PAYLOADS)
    return uri


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that are decoded, in order."""
    found: list[int] = []
    read_group = EntriesFile.read_group

    def noted(self: EntriesFile, number: int) -> Any:
        found.append(number)
        return read_group(self, number)

    monkeypatch.setattr(EntriesFile, "read_group", noted)
    return found


async def test_what_is_kept_is_bounded_and_what_was_used_longest_ago_leaves(
    place: str, groups: list[int]
) -> None:
    files = OffloadedFiles(2 * GROUP_COST)
    for entry_id in (0, 1, 2, 0, 4, 0, 2):
        assert entries_of(PAYLOADS)[entry_id] in await files.group(place, 7, 10, entry_id)
        assert files.size_bytes <= 2 * GROUP_COST
    assert groups == [0, 1, 2, 1]
    files.close()


async def test_readers_of_one_row_group_share_one_read_and_a_bound_of_nothing_keeps_nothing(
    place: str, groups: list[int]
) -> None:
    files = OffloadedFiles(2 * GROUP_COST)
    reader = OffloadedReader(files, place, 7, 10)
    await asyncio.gather(*(reader.read_batch(0, 9, entries_max=10, bytes_max=10**6) for _ in range(5)))
    assert groups == [0]
    files.close()
    none = OffloadedFiles(0)
    await none.group(place, 7, 10, 0)
    assert none.size_bytes == 0
    none.close()


async def test_a_row_group_that_two_readers_decode_at_once_counts_once(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counted twice never left the sum, until the cache took out more than it had."""
    both, begun = threading.Barrier(2), asyncio.Event()
    loop = asyncio.get_running_loop()
    read_group = EntriesFile.read_group

    def together(self: EntriesFile, number: int) -> Any:
        loop.call_soon_threadsafe(begun.set)
        both.wait(TIMEOUT_S)
        return read_group(self, number)

    monkeypatch.setattr(EntriesFile, "read_group", together)
    files = OffloadedFiles(2 * GROUP_COST)
    first = asyncio.create_task(files.group(place, 7, 10, 0))
    await begun.wait()
    files.forget(place)
    assert await files.group(place, 7, 10, 0) == await first
    assert files.size_bytes == GROUP_COST
    files.close()


@pytest.mark.parametrize(
    ("first", "last", "entries_max", "bytes_max", "count"),
    [
        (0, 9, 10, 10**6, 2),
        (0, 9, 1, 10**6, 1),
        (0, 9, 10, 1_999, 1),
        (0, 9, 10, 1, 1),
        (1, 9, 10, 10**6, 1),
        (2, 2, 10, 10**6, 1),
    ],
)
async def test_a_batch_has_at_least_one_entry_and_as_many_as_fit(
    place: str, first: int, last: int, entries_max: int, bytes_max: int, count: int
) -> None:
    files = OffloadedFiles()
    reader = OffloadedReader(files, place, 7, 10)
    assert reader.last_add_confirmed == 9
    found = await reader.read_batch(first, last, entries_max=entries_max, bytes_max=bytes_max)
    assert list(found) == entries_of(PAYLOADS)[first : first + count]
    files.close()


async def test_rule_70_a_file_that_comes_back_is_read_without_a_restart(place: str, tmp_path: Path) -> None:
    files = OffloadedFiles(0)
    reader = OffloadedReader(files, place, 7, 10)
    path = tmp_path / "seven.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes(100) + whole[200:])
    with pytest.raises(OffloadError):
        await reader.read_batch(0, 9, entries_max=10, bytes_max=10**6)
    path.write_bytes(whole)
    assert len(await reader.read_batch(0, 9, entries_max=10, bytes_max=10**6)) == 2
    files.close()


async def test_each_attempt_that_fails_is_counted_by_its_reason(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []
    files = OffloadedFiles(0, reasons.append)
    await files.group(place, 7, 10, 0)
    other = WrittenEntries(1, 10, 1)
    with pytest.raises(OffloadFileError, match="was written"):
        await files.check(place, 7, other)
    with pytest.raises(OffloadFileError, match="does not exist"):
        await files.group(f"file://{tmp_path}/none", 7, 10, 0)
    assert reasons == ["file", "file"]
    for error, reason in (
        (OffloadError("no route to the store"), "store"),
        (OffloadMissingError(), "library"),
    ):

        def failing(*_: Any, error: OffloadError = error) -> None:
            raise error

        reasons.clear()
        monkeypatch.setattr(offloaded_files, "EntriesFile", failing)
        with pytest.raises(OffloadError):
            await files.group(f"file://{tmp_path}/{reason}", 7, 10, 0)
        with pytest.raises(OffloadError):
            await files.check(place, 7, other)
        assert reasons == [reason, reason]
        assert reason in FILE_FAILURES
    files.close()


async def test_indexes_of_so_many_files_are_kept(place: str, tmp_path: Path) -> None:
    files = OffloadedFiles()
    for number in range(FILES_MAX + 1):
        with pytest.raises(OffloadFileError, match="does not exist"):
            await files.group(f"file://{tmp_path}/{number}", 7, 10, 0)
    assert (await files.group(place, 7, 10, 0))[0].data == PAYLOADS[0]
    files.close()
