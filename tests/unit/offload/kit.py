"""Entries in files."""

from collections.abc import Sequence

from daybook.core.format.entries import Entry
from daybook.offload.reading import EntriesFile
from daybook.offload.writing import EntriesWriter, WrittenEntries


def entries_of(payloads: Sequence[bytes]) -> list[Entry]:
    """The entries of a ledger with these payloads."""
    return [Entry(entry_id, payload) for entry_id, payload in enumerate(payloads)]


def write(uri: str, payloads: Sequence[bytes], ledger_id: int = 7) -> WrittenEntries:
    """Write the file of a ledger."""
    writer = EntriesWriter(uri, ledger_id)
    with writer:
        writer.add(entries_of(payloads))
    return writer.written()


def read_all(uri: str, entries: int, ledger_id: int = 7) -> list[bytes]:
    """All payloads of a file."""
    file = EntriesFile(uri, ledger_id, entries)
    try:
        return [entry.data for group in file.read(0, entries - 1) for entry in group]
    finally:
        file.close()
