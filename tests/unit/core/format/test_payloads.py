"""Sizes of entries before they are in a frame."""

import pytest

from daybook.core.errors import EntryTooLargeError
from daybook.core.format.payloads import check_payloads, payload_bytes
from daybook.core.ids import ENTRY_BYTES_MAX


@pytest.mark.parametrize("beside", [[], [bytes(8)]])
def test_an_oversized_entry_is_refused_before_it_is_sent(beside: list[bytes]) -> None:
    check_payloads([*beside, bytes(ENTRY_BYTES_MAX)])
    with pytest.raises(EntryTooLargeError, match="at most 8388608"):
        check_payloads([*beside, bytes(ENTRY_BYTES_MAX + 1)])


def test_no_entry_has_no_size_and_is_not_too_large() -> None:
    check_payloads([])
    assert payload_bytes([]) == 0


def test_entries_of_any_kind_count_with_their_bytes() -> None:
    assert payload_bytes([b"abc"]) == 3
    assert payload_bytes([b"abc", bytearray(4), memoryview(b"abcde")]) == 12
