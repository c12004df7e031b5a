"""What a broker answers to a lookup: rule 46 of docs/protocol.md, and nothing that a moment would change."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daybook.core.topics.ownership import lookup
from daybook.core.topics.ownership.lookup import (
    Ask,
    AtOwner,
    BundleOwner,
    Choose,
    Decision,
    Hold,
    Holding,
    LookupFacts,
    Mine,
    Take,
)

FREE = LookupFacts(
    "me",
    is_certain=True,
    holding=Holding.NOTHING,
    owner=None,
    leader="leader",
    answering=frozenset({"me", "leader", "other"}),
    authoritative=False,
)


@pytest.mark.parametrize("holding", Holding)
@pytest.mark.parametrize(
    "owner", [None, BundleOwner("me"), BundleOwner("other"), BundleOwner("x", released=True, to="me")]
)
@pytest.mark.parametrize("authoritative", [False, True])
def test_rule_46_an_owner_in_doubt_answers_no_lookup(
    holding: Holding, owner: BundleOwner | None, *, authoritative: bool
) -> None:
    facts = replace(FREE, is_certain=False, holding=holding, owner=owner, authoritative=authoritative)
    decision = lookup.decide(facts)
    assert isinstance(decision, Hold)
    assert "may have ended" in decision.why


@pytest.mark.parametrize(
    ("changes", "decision"),
    [
        ({}, Ask("leader", authoritative=False)),
        ({"leader": "me"}, Choose()),
        ({"authoritative": True}, Take()),
        ({"holding": Holding.OWNED, "owner": BundleOwner("me")}, Mine()),
        ({"owner": BundleOwner("other")}, AtOwner("other")),
        ({"owner": BundleOwner("other"), "authoritative": True}, AtOwner("other")),
        ({"owner": BundleOwner("other"), "leader": None}, AtOwner("other")),
        ({"owner": BundleOwner("gone", released=True)}, Ask("leader", authoritative=False)),
        ({"owner": BundleOwner("gone", released=True, to="me")}, Take()),
        ({"owner": BundleOwner("gone", released=True, to="other")}, Ask("other", authoritative=True)),
        (
            {"owner": BundleOwner("gone", released=True, to="other"), "authoritative": True},
            Ask("other", authoritative=True),
        ),
        ({"owner": BundleOwner("me", released=True, to="gone")}, Ask("leader", authoritative=False)),
        ({"owner": BundleOwner("me", released=True, to="gone"), "leader": "me"}, Choose()),
        ({"owner": BundleOwner("me", released=True, to="gone"), "authoritative": True}, Take()),
    ],
)
def test_a_client_is_sent_to_the_one_who_knows(changes: dict[str, object], decision: Decision) -> None:
    assert lookup.decide(replace(FREE, **changes)) == decision  # type: ignore[arg-type]  # the fields of LookupFacts


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"holding": Holding.LEAVING, "owner": BundleOwner("me")}, "handing the topic over"),
        ({"owner": BundleOwner("me")}, "earlier session"),
        ({"owner": BundleOwner("gone")}, "does not answer"),
        ({"owner": BundleOwner("gone"), "authoritative": True}, "does not answer"),
        ({"leader": None}, "electing a leader"),
        ({"leader": "gone"}, "leader gone does not answer"),
    ],
)
def test_a_lookup_is_held_where_the_answer_will_be_another_in_a_moment(
    changes: dict[str, object], why: str
) -> None:
    decision = lookup.decide(replace(FREE, **changes))  # type: ignore[arg-type]  # the fields of LookupFacts
    assert isinstance(decision, Hold)
    assert why in decision.why


@given(
    st.builds(
        LookupFacts,
        st.just("me"),
        is_certain=st.booleans(),
        holding=st.sampled_from(Holding),
        owner=st.none()
        | st.builds(
            BundleOwner,
            st.sampled_from(["me", "a", "b"]),
            st.booleans(),
            st.sampled_from(["", "me", "a", "b"]),
        ),
        leader=st.sampled_from([None, "me", "a", "b"]),
        answering=st.frozensets(st.sampled_from(["me", "a", "b"])),
        authoritative=st.booleans(),
    )
)
def test_nobody_is_sent_to_a_broker_that_does_not_answer_and_no_living_lease_is_taken(
    facts: LookupFacts,
) -> None:
    decision = lookup.decide(facts)
    if isinstance(decision, AtOwner | Ask):
        assert decision.broker in facts.answering
        assert decision.broker != "me"
    if isinstance(decision, Take | Choose):
        assert facts.is_certain
        assert facts.owner is None or facts.owner.released
    assert (decision == Mine()) == (facts.is_certain and facts.holding is Holding.OWNED)
