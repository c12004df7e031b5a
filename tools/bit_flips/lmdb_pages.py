"""Which pages of an LMDB file are in use, and as what: damage to a page that nothing refers to proves nothing.

The layout is LMDB 0.9's (mdb.c: MDB_page, MDB_meta, MDB_db, MDB_node), 64 bit, pages of 4096 bytes.
"""

import struct
from collections.abc import Iterator
from typing import Final

PAGE_BYTES: Final = 4096
_HEADER: Final = struct.Struct("<QHHHH")  # number, pad, flags, lower, upper
_BRANCH: Final = 1
_META_AT: Final = 16 + 24  # page header; magic, version, address, map size
_DB: Final = struct.Struct("<IHHQQQQQ")  # pad, flags, depth, branches, leaves, overflows, entries, root
_TRANSACTION_AT: Final = _META_AT + 2 * _DB.size + 8
_NODE: Final = struct.Struct("<HHHH")  # low, high, flags, key size
_BIG_DATA: Final = 1
_SUB_DATABASE: Final = 2
_NO_PAGE: Final = 2**64 - 1


def used_pages(data: bytes) -> Iterator[tuple[str, int]]:
    """(what it is, page number) of the meta pages and of everything that the newer one leads to."""
    yield "meta 0", 0
    yield "meta 1", 1
    newer = max((0, 1), key=lambda page: _transaction(data, page))
    root = _DB.unpack_from(data, newer * PAGE_BYTES + _META_AT + _DB.size)[-1]
    yield from _tree(data, root, "names")


def _transaction(data: bytes, page: int) -> int:
    (number,) = struct.unpack_from("<Q", data, page * PAGE_BYTES + _TRANSACTION_AT)
    return int(number)


def _tree(data: bytes, page: int, name: str) -> Iterator[tuple[str, int]]:
    base = page * PAGE_BYTES
    number, _, flags, lower, _ = _HEADER.unpack_from(data, base)
    assert number == page
    branch = bool(flags & _BRANCH)
    yield f"{name} {'branch' if branch else 'leaf'}", page
    for at in range((lower - _HEADER.size) // 2):
        (offset,) = struct.unpack_from("<H", data, base + _HEADER.size + 2 * at)
        low, high, node_flags, key_size = _NODE.unpack_from(data, base + offset)
        content = base + offset + _NODE.size + key_size
        if branch:
            yield from _tree(data, low | high << 16 | node_flags << 32, name)
        elif node_flags & _SUB_DATABASE:
            root = _DB.unpack_from(data, content)[-1]
            key = data[base + offset + _NODE.size : content].decode()
            if root != _NO_PAGE:
                yield from _tree(data, root, key)
        elif node_flags & _BIG_DATA:
            (big,) = struct.unpack_from("<Q", data, content)
            yield f"{name} overflow", big
