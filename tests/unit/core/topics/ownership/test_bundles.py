"""The hash ranges of a namespace."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.errors import TopicNameError
from daybook.core.topics.name import TopicName
from daybook.core.topics.ownership.bundles import BUNDLES_PER_NAMESPACE, Bundle, bundles_of


def test_the_ranges_of_a_namespace_are_pulsars_and_meet() -> None:
    ranges = [bundle.range for bundle in bundles_of("public", "default")]
    assert len(ranges) == BUNDLES_PER_NAMESPACE
    assert ranges[0] == "0x00000000_0x08000000"
    assert ranges[-1] == "0xf8000000_0xffffffff"
    assert [found[11:] for found in ranges[:-1]] == [found[:10] for found in ranges[1:]]


@given(st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1, max_size=20))
def test_a_topic_has_one_bundle_of_its_namespace_which_comes_back_from_its_name(local: str) -> None:
    try:
        topic = TopicName("a=b", "..", local)
    except TopicNameError:
        return
    bundle = Bundle.of(topic)
    assert bundle in bundles_of("a=b", "..")
    assert Bundle.of(topic) == bundle
    assert Bundle.parse(str(bundle)) == bundle


def test_partitions_spread_over_the_bundles() -> None:
    names = [TopicName("public", "default", f"orders-partition-{n}") for n in range(1000)]
    assert len({Bundle.of(name) for name in names}) == BUNDLES_PER_NAMESPACE


def test_the_hash_is_never_another_one() -> None:
    """Brokers of different releases must agree about it."""
    assert Bundle.of(TopicName("public", "default", "orders")).number == 22


@pytest.mark.parametrize(
    "text",
    ["", "a/b", "a/b/0x00000000_0x10000000", "a/b/c/0x00000000_0x08000000", "a b/c/0x00000000_0x08000000"],
)
def test_what_is_no_bundle_is_refused(text: str) -> None:
    with pytest.raises(TopicNameError):
        Bundle.parse(text)
