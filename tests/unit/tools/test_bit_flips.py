"""Rule 25 and rule 26: a sample of what `make bit-flips` does to every bit."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from daybook_bookie.journal.format import PAGE_BYTES

from tests.unit.bookie.store.kit import memory_directory
from tools.bit_flips.campaign import Flips, flip
from tools.bit_flips.flipping import DATA, Image, Place, journal_image, store_image

META_HEADER = 160
"""Bytes of a meta page that LMDB uses."""
FILE = 1 << 30
JOURNAL_FLIPS = 3000


def sample(image: Image, count: int) -> Flips:
    """Half of the flips where something is written, the others anywhere."""
    random = Random(26)
    bits = image.bits()
    written = [(place, bit) for place, bit in bits if image.files[place.file][bit // 8]]
    return flip([image], random.sample(written, count // 2) + random.sample(bits, count - count // 2))


@pytest.mark.parametrize(
    ("sizes", "count", "io_errors", "refused"),
    [({}, 900, 100, 5), ({0: FILE}, 600, 10, 0), ({0: META_HEADER, PAGE_BYTES: META_HEADER}, 100, -1, 10)],
    ids=["a page of each kind", "the whole file", "the headers of the meta pages"],
)
def test_rule_26_a_flipped_bit_of_a_store_is_noticed_or_harmless(
    sizes: dict[int, int], count: int, io_errors: int, refused: int
) -> None:
    with memory_directory() as name:
        image = store_image(Path(name))
        whole = len(image.files[DATA])
        places = [Place("data", DATA, offset, min(size, whole)) for offset, size in sizes.items()]
        flips = sample(replace(image, places=places or image.places), count)
    assert flips.violations == []
    assert flips.total == count
    assert flips.count("io-error") > io_errors, flips.counts
    assert flips.count("refused") > refused, flips.counts
    assert flips.count("died") + flips.count("hung") < count / 10, flips.counts


@pytest.mark.parametrize("closed", [True, False])
def test_rule_25_a_flipped_bit_of_a_journal_is_noticed_or_harmless(*, closed: bool) -> None:
    flips = sample(journal_image(closed=closed), JOURNAL_FLIPS)
    assert flips.violations == []
    assert flips.total == JOURNAL_FLIPS
    assert flips.count("refused") > 500, flips.counts
    assert closed == (flips.count("torn tail") == 0), flips.counts


def test_a_judge_sees_entries_that_vanish() -> None:
    """Without the proof that the last group was durable, damage to it takes entries away: the judge says so."""
    image = journal_image(closed=False)
    strict = Image(image.name, image.files, image.places, image.judge, {})
    last = [(place, bit) for place, bit in image.bits() if place.what == "last group"]
    assert len(flip([strict], last[:300]).violations) > 250
