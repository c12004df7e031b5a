"""Rule 25 and rule 26: a sample of what `make bit-flips` does to every bit."""

from pathlib import Path
from random import Random

import pytest

from tests.unit.bookie.store.kit import memory_directory
from tools.bit_flips.campaign import Flips, flip
from tools.bit_flips.flipping import Image, journal_image, store_image

STORE_FLIPS = 900
JOURNAL_FLIPS = 3000


def sample(image: Image, count: int) -> Flips:
    """Half of the flips where something is written, the others anywhere."""
    random = Random(26)
    bits = image.bits()
    written = [(place, bit) for place, bit in bits if image.files[place.file][bit // 8]]
    return flip([image], random.sample(written, count // 2) + random.sample(bits, count - count // 2))


def test_rule_26_a_flipped_bit_of_a_store_is_noticed_or_harmless() -> None:
    with memory_directory() as name:
        flips = sample(store_image(Path(name)), STORE_FLIPS)
    assert flips.violations == []
    assert flips.total == STORE_FLIPS
    assert flips.count("io-error") > 100, flips.counts
    assert flips.count("refused") > 5, flips.counts
    assert flips.count("died") + flips.count("hung") < STORE_FLIPS / 10, flips.counts


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
