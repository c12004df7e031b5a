"""Damaged bytes against everything that reads bytes: only documented errors, clear ones, and memory that stays small."""

import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.process.fuzz.mutations import EDITS_MAX, Edit, nested
from tests.process.fuzz.targets import TARGETS

MEMORY_BASE_BYTES = 512 * 1024
MEMORY_FACTOR = 60
"""A frame without entries has 64 bytes and becomes an object; nothing else grows so much."""

edits = st.lists(
    st.builds(
        Edit,
        st.integers(0, 255),
        st.integers(0, 255),
        st.integers(0, 2**32 - 1),
        st.integers(-(2**31), 2**31 - 1),
    ),
    min_size=1,
    max_size=EDITS_MAX,
)


def takes_in_bounds(name: str, data: bytes) -> bool:
    """Whether the target takes it; its memory is bounded by what came, not by what that says of itself."""
    tracemalloc.start()
    try:
        taken = TARGETS[name].takes(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes <= MEMORY_BASE_BYTES + MEMORY_FACTOR * len(data), f"{peak_bytes} for {len(data)}"
    return taken


@pytest.mark.parametrize("name", TARGETS)
def test_a_sound_sample_is_taken_sealed_or_not(name: str) -> None:
    target = TARGETS[name]
    for number, sample in enumerate(target.samples):
        assert takes_in_bounds(name, sample)
        assert takes_in_bounds(name, target.seal(sample)), f"sample {number} does not survive its own seal"


@pytest.mark.parametrize("name", TARGETS)
@given(sample=st.integers(0, 3), edits=edits, sealed=st.booleans())
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_damaged_bytes_are_refused_clearly_or_taken(
    name: str, sample: int, edits: list[Edit], sealed: bool
) -> None:
    takes_in_bounds(name, TARGETS[name].damaged(sample, edits, sealed=sealed))


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=400))
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_bytes_of_nobody_are_refused_clearly(name: str, data: bytes) -> None:
    takes_in_bounds(name, data)


@pytest.mark.parametrize("name", ["metadata", "cookie"])
def test_a_document_of_great_depth_is_refused(name: str) -> None:
    target = TARGETS[name]
    assert not target.takes(target.seal(nested(100_000)))
