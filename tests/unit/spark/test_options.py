"""Options: their values, and what an error says."""

from pathlib import Path

import pytest
from daybook_spark.options import OptionError, Password, parse_read, parse_stream

from daybook.core.topics.ledger_list import Position

WHERE = {"zookeeper": "zk:2181"}


def test_names_in_any_case_and_values_with_units() -> None:
    found = parse_read(
        {**WHERE, "TOPIC": "a, b", "partitionbytes": "2m", "StartTime": "2026-01-02T03:04:05", "start": "7:1"}
    )
    assert found.topics == ("a", "b")
    assert found.partition_bytes == 2 * 1024 * 1024
    assert found.start_time_ms == 1_767_323_045_000
    assert found.start == Position(7, 1)
    stream = parse_stream({**WHERE, "topic": "a", "maxBytesPerTrigger": "1g", "failOnDataLoss": "false"})
    assert (stream.bytes_max, stream.fails_on_data_loss) == (2**30, False)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"topic": "a", "endTme": "0"}, r"spark.read has no option endTme: did you mean endTime\?"),
        ({"topic": "a", "subscription": "s"}, "spark.read has no option subscription"),
        ({"topic": "a", "partitionBytes": "none"}, "option partitionBytes = 'none'"),
        ({"topic": "a", "pushdown": "yes"}, "option pushdown = 'yes': true or false"),
        ({"topic": "a", "ledger": "1"}, "ledger and topic|topic and ledger"),
        ({}, "what to read"),
    ],
)
def test_an_error_says_what_to_do(options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_read({**WHERE, **options})


@pytest.mark.parametrize("source", ["ledger", "manifest"])
@pytest.mark.parametrize("option", [{"startTime": "0"}, {"endTime": "0"}, {"mode": "permissive"}])
def test_an_option_of_messages_is_refused_where_entries_are_read_as_they_are_stored(
    source: str, option: dict[str, str]
) -> None:
    (name,) = option
    with pytest.raises(OptionError, match=f"option {name} is for messages, and {source} reads entries"):
        parse_read({**WHERE, source: "7", **option})
    assert parse_read({**WHERE, "topic": "a", **option}).topics == ("a",)


@pytest.mark.parametrize("position", ["earliest", "latest"])
def test_a_stream_begins_at_a_time_or_at_a_position(position: str) -> None:
    with pytest.raises(OptionError, match="give one of them"):
        parse_stream({**WHERE, "topic": "a", "startTime": "0", "startingPosition": position})


def test_a_cluster_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAYBOOK_ZOOKEEPER", raising=False)
    with pytest.raises(OptionError, match="which cluster"):
        parse_read({"topic": "a"})
    monkeypatch.setenv("DAYBOOK_ZOOKEEPER", "zk:1")
    assert parse_read({"topic": "a"}).where.zookeeper == "zk:1"


@pytest.mark.parametrize("name", ["password", "zookeeperDigest", "token", "Secret"])
def test_a_secret_is_no_option_and_its_value_is_not_shown(name: str) -> None:
    with pytest.raises(OptionError, match="secrets are none") as caught:
        parse_read({**WHERE, "topic": "a", name: "hunter2"})
    assert "hunter2" not in str(caught.value)


def test_passwords_come_from_files_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAYBOOK_PASSWORD", "of the environment")
    assert Password.read() == b"of the environment"
    file = tmp_path / "password"
    file.write_bytes(b"of the file\n")
    monkeypatch.setenv("DAYBOOK_PASSWORD_FILE", str(file))
    assert Password.read() == b"of the file"
    file.unlink()
    with pytest.raises(OptionError, match="cannot be read"):
        Password.read()
