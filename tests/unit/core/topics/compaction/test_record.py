"""The entries of compacted ledgers, byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import CompactionError
from daybook.core.topics.acks import bits_of
from daybook.core.topics.compaction.record import decode_compacted, encode_compacted
from daybook.core.topics.ledger_list import Position

WHOLE = b"entry" + bytes.fromhex("0000000000000007 0000000000000102 0000 01")
PART = b"entry" + bytes.fromhex("8000000000000001 0000000000000007 0000000000000102 0001 01")


def test_the_stored_form_is_the_documented_one() -> None:
    position = Position(7, 0x102)
    assert encode_compacted(position, b"entry") == WHOLE
    kept = [index in (0, 63) for index in range(70)]
    assert encode_compacted(position, b"entry", kept) == PART
    assert decode_compacted(PART).left == (-(2**63) + 1,), "signed, as it travels"


@given(
    position=st.builds(Position, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)),
    data=st.binary(max_size=40),
    kept=st.lists(st.booleans(), min_size=1, max_size=200).filter(any),
)
def test_an_entry_comes_back_as_it_was(position: Position, data: bytes, kept: list[bool]) -> None:
    found = decode_compacted(encode_compacted(position, data, kept))
    assert (found.position, bytes(found.data)) == (position, data)
    if all(kept):
        assert found.left == ()
    else:
        assert bits_of(found.left) == sum(1 << index for index, stays in enumerate(kept) if stays)


@pytest.mark.parametrize(
    ("payload", "match"),
    [
        (WHOLE[-18:], "has 18 bytes, fewer"),
        (WHOLE[:-1] + b"\x02", "version 2, and this release reads 1"),
        (WHOLE[:-3] + b"\x00\x01\x01", "of 24 bytes cannot have 1 words"),
    ],
)
def test_what_no_compaction_writes_is_refused(payload: bytes, match: str) -> None:
    with pytest.raises(CompactionError, match=match):
        decode_compacted(payload)
