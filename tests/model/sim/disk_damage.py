"""Damage to the bytes of a disk at rest: to a journal's wherever a replay can tell it from a torn tail, to a store's blocks."""

from random import Random
from typing import Final

from daybook_bookie.journal.format import DATA_START, PAGE_BYTES, file_id_of, file_name

from daybook.core.format.frame import HEADER_BYTES
from tests.model.sim.journalled import JournalledDisk

_RECORD_BYTES: Final = 400
"""Groups are small here: most of a page's rest is never read."""


def flip_journal(disk: JournalledDisk, rng: Random) -> bool:
    """Flip one bit of a file; whether there was a place."""
    places = _pages(disk)
    if not places:
        return False
    name, page = rng.choice(places)
    content = disk.journal_disk.files[name].seen
    at = page + rng.randrange(min(_RECORD_BYTES, len(content) - page))
    content[at] ^= 1 << rng.randrange(8)
    return True


def misdirect_write(disk: JournalledDisk, rng: Random) -> bool:
    """A page was written at another's place: that one is lost, and its own was never written."""
    pages: dict[str, list[int]] = {}
    for name, page in _pages(disk):
        if page:
            pages.setdefault(name, []).append(page)
    names = [name for name, found in pages.items() if len(found) > 1]
    if not names:
        return False
    name = rng.choice(names)
    wanted, wrong = rng.sample(pages[name], 2)
    content = disk.journal_disk.files[name].seen
    content[wrong : wrong + PAGE_BYTES] = content[wanted : wanted + PAGE_BYTES]
    content[wanted : wanted + PAGE_BYTES] = bytes(PAGE_BYTES)
    return True


def lose_file(disk: JournalledDisk, rng: Random) -> bool:
    """A file is gone, which is not the last one."""
    names = _names(disk)[:-1]
    if not names:
        return False
    files = disk.journal_disk
    files.unlink(rng.choice(names))
    files.sync_directory()
    return True


def flip_store(disk: JournalledDisk, rng: Random) -> bool:
    """Flip a bit of a stored block's body; whether there was one."""
    places = [(ledger_id, first) for ledger_id, blocks in disk.platter.blocks.items() for first in blocks]
    if not places:
        return False
    ledger_id, first = rng.choice(places)
    at = rng.randrange(HEADER_BYTES, len(disk.platter.blocks[ledger_id][first]))
    disk.damage_block(ledger_id, first, at, rng.randrange(8))
    return True


def _names(disk: JournalledDisk) -> list[str]:
    return [name for name in disk.journal_disk.names() if file_id_of(name) is not None]


def _pages(disk: JournalledDisk) -> list[tuple[str, int]]:
    """The pages before the last position that a later group proves to have been durable, headers included."""
    proved, found = disk.proved, []
    for name in _names(disk):
        end = len(disk.journal_disk.files[name].seen)
        if name == file_name(proved.file_id):
            end = max(proved.offset, DATA_START)
        elif name > file_name(proved.file_id):
            end = DATA_START
        found += [(name, page) for page in range(0, end, PAGE_BYTES)]
    return found
