"""Names of topics and subscriptions: what Pulsar allows, and what no node can be made of."""

import pytest

from daybook.core.errors import TopicNameError
from daybook.core.topics.name import NAME_BYTES_MAX, TopicName, check_entity, check_subscription


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("orders", "persistent://public/default/orders"),
        ("a/b/orders", "persistent://a/b/orders"),
        ("persistent://a/b/orders", "persistent://a/b/orders"),
        (
            "persistent://a-b=c:d/e.f_1/größe %2F?#-partition-3",
            "persistent://a-b=c:d/e.f_1/größe %2F?#-partition-3",
        ),
        ("persistent://./../..", "persistent://./../.."),
    ],
)
def test_a_name_is_read_as_pulsar_reads_it(text: str, whole: str) -> None:
    name = TopicName.parse(text)
    assert str(name) == whole
    assert TopicName.parse(whole) == name


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "at least one visible character"),
        ("persistent://", "has 1 parts"),
        ("persistent://orders", "has 1 parts"),
        ("a/orders", "has 2 parts"),
        ("persistent://a/cluster/b/orders", "has 4 parts"),
        ("non-persistent://a/b/orders", "only persistent topics exist"),
        ("persistent://a//orders", "cannot name a namespace"),
        ("persistent://ä/b/orders", "cannot name a tenant: use letters"),
        ("persistent://a/b c/orders", "cannot name a namespace: use letters"),
        ("persistent://a/b/ \t", "cannot name a topic"),
        ("persistent://a/b/\udc80", "surrogate"),
        ("persistent://a/b/" + "ä" * (NAME_BYTES_MAX // 2 + 1), "choose a shorter one"),
    ],
)
def test_other_names_are_refused_with_a_reason(text: str, what: str) -> None:
    with pytest.raises(TopicNameError, match=what):
        TopicName.parse(text)


def test_a_topic_and_a_tenant_have_no_slash() -> None:
    with pytest.raises(TopicNameError, match="cannot name a topic: use no slash"):
        TopicName("a", "b", "or/ders")
    with pytest.raises(TopicNameError, match="cannot name a tenant: use no slash"):
        check_entity("a/b", "tenant")


def test_the_longest_name_is_taken() -> None:
    assert check_entity("x" * NAME_BYTES_MAX, "tenant")


def test_a_subscription_may_have_any_character() -> None:
    for name in ("größe . %2F ☃", "a/b", "/"):
        assert check_subscription(name) == name
    for name in ("", " "):
        with pytest.raises(TopicNameError, match="cannot name a subscription"):
            check_subscription(name)
