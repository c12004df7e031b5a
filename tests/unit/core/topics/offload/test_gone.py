"""Files of deleted topics: when they go, and what never does (rule 73)."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from daybook.core.topics.name import TopicName
from daybook.core.topics.offload.gone import FoundFiles, Verdict, judge_files

TOPIC: Final = TopicName("public", "default", "orders")
RUN: Final = "1" * 32
FILE, OTHER = f"7-{RUN}-0.parquet", f"8-{RUN}-1.parquet"
GRACE_MS: Final = 1000


def judge(
    *names: str,
    noted_ms: int | None = None,
    named: tuple[str, ...] = (),
    exists: bool = False,
    now_ms: int = 10_000,
    grace_ms: int = GRACE_MS,
) -> Verdict:
    found = FoundFiles(TOPIC, names, noted_ms)
    return judge_files(found, named, exists=exists, grace_ms=grace_ms, unix_ms=now_ms)


def test_rule_73_files_of_a_deleted_topic_go_once_the_grace_since_the_note_is_over() -> None:
    assert judge(FILE) == Verdict(note=True)
    assert judge(FILE, noted_ms=10_000 - GRACE_MS + 1) == Verdict()
    assert judge(OTHER, FILE, f"_{FILE}", noted_ms=10_000 - GRACE_MS).delete == (FILE, OTHER, f"_{FILE}")
    assert judge(FILE, noted_ms=20_000) == Verdict(), "the clock of the store may be ahead"
    assert judge(FILE, grace_ms=0) == Verdict(delete=(FILE,))


def test_rule_73_a_topic_of_the_same_name_keeps_its_files_and_ends_the_grace() -> None:
    assert judge(FILE, noted_ms=0, exists=True) == Verdict(forget=True)
    assert judge(FILE, exists=True) == Verdict()


def test_rule_73_what_a_list_names_stays_with_its_rows() -> None:
    assert judge(FILE, f"_{FILE}", OTHER, noted_ms=0, named=(FILE,)).delete == (OTHER,)
    assert judge(FILE, noted_ms=0, named=(FILE,)) == Verdict(forget=True)


def test_rule_73_a_file_that_no_offload_has_written_stays() -> None:
    foreign = ("notes.txt", f"7-{RUN}.parquet", f"7-{RUN}-0.parquet.bak", "x-1-0.parquet", "_SUCCESS")
    assert judge(*foreign, noted_ms=0) == Verdict(forget=True)
    assert judge(*foreign) == Verdict()
    assert judge(*foreign, FILE, noted_ms=0).delete == (FILE,)


@given(
    names=st.frozensets(st.sampled_from([FILE, OTHER, f"_{FILE}", "notes.txt"])),
    named=st.frozensets(st.sampled_from([FILE, OTHER])),
    noted_ms=st.none() | st.integers(0, 20_000),
    exists=st.booleans(),
)
def test_rule_73_nothing_goes_that_is_named_foreign_young_or_of_a_topic(
    names: frozenset[str], named: frozenset[str], noted_ms: int | None, exists: bool
) -> None:
    verdict = judge(*names, noted_ms=noted_ms, named=tuple(named), exists=exists)
    assert verdict.note + verdict.forget + bool(verdict.delete) <= 1
    going = set(verdict.delete)
    assert going <= names - {"notes.txt"} - named - {f"_{each}" for each in named}
    if going:
        assert not exists
        assert noted_ms is not None
        assert 10_000 - noted_ms >= GRACE_MS
