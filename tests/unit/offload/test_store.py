"""The URI of a place: what it may say, and what an error says."""

import sys
from pathlib import Path

import pytest

from daybook.core.topics.name import TopicName
from daybook.offload.errors import OffloadError, OffloadMissingError
from daybook.offload.reading import EntriesFile
from daybook.offload.store import check_uri, file_uri, files_in, make_folder, topic_folder
from tests.fixtures.object_store import S3
from tests.unit.offload.kit import write


@pytest.mark.parametrize(
    "uri",
    ["file:///cold", "s3://bucket", "s3://bucket/a/b?region=eu-west-1&scheme=http&endpoint_override=h:1"],
)
def test_places_are_local_folders_and_buckets(uri: str) -> None:
    check_uri(uri)


@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("", "no place for offloaded ledgers: use file"),
        ("/cold", "no place"),
        ("hdfs://host/cold", "no place"),
        ("s3://bucket/a#b", "no place"),
        ("file://host/cold", "names no folder"),
        ("file:///", "names no folder"),
        ("s3:///cold", "names no folder"),
        ("file:///cold?region=x", "unknown option 'region'"),
        ("s3://bucket?allow_bucket_creation=true", "unknown option 'allow_bucket_creation'"),
        ("s3://bucket?x", "no URI"),
        ("s3://[bucket", "no URI"),
    ],
)
def test_other_places_are_refused(uri: str, what: str) -> None:
    with pytest.raises(OffloadError, match=what):
        check_uri(uri)


def test_credentials_in_a_place_are_refused_and_not_shown() -> None:
    with pytest.raises(OffloadError, match=r"environment \(AWS_ACCESS_KEY_ID") as refused:
        check_uri("s3://AKIA:sekret@bucket/cold")
    assert "sekret" not in str(refused.value)


def test_each_topic_of_each_cluster_has_a_folder_of_its_own() -> None:
    def folder(local: str, cluster: str = "c") -> str:
        return topic_folder("s3://b/x/?region=r", cluster, TopicName("a", "b", local))

    assert folder("orders") == "s3://b/x/c/a/b/orders?region=r"
    names = ["c", "c_", "_63", "c d", "c%20d", "..", ".c", "_2e", "ü", "a?b#c"]
    found = [folder(name) for name in names] + [folder("c", "other")]
    assert len(set(found)) == len(found)
    assert not any(part in uri for uri in found for part in ("..", "%", "#", " ", "ü"))
    assert all(uri.count("?") == 1 and uri.count("/") == 7 for uri in found)


def test_a_store_that_cannot_be_reached_says_what_to_check(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    uri = f"s3://cold?region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{unused_tcp_port}"
    with pytest.raises(OffloadError, match="nothing answers there: correct `endpoint_override`"):
        files_in(file_uri(uri, "topic"))


def test_a_bucket_that_is_missing_is_named_as_such(s3: S3) -> None:
    with pytest.raises(OffloadError, match="create the bucket"):
        write(s3.place("no-such-bucket"), [b"a"])


def test_credentials_that_the_store_refuses_are_named_as_such(s3: S3) -> None:
    write(file_uri(s3.place(), "a"), [b"a"])
    with s3.refusing():
        with pytest.raises(OffloadError, match="correct the credentials in its environment"):
            EntriesFile(file_uri(s3.place(), "a"), 7, 1)
        with pytest.raises(OffloadError, match="correct the credentials in its environment"):
            write(file_uri(s3.place(), "b"), [b"a"])
        with pytest.raises(OffloadError, match="correct the credentials in its environment"):
            files_in(s3.place())


def test_a_folder_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OffloadError, match="check the place"):
        make_folder(f"file://{tmp_path}/file/folder")


def test_without_pyarrow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(f"file://{tmp_path}/a", [b"a"])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(OffloadMissingError, match="install the extra `offload`"):
        EntriesFile(f"file://{tmp_path}/a", 7, 1)
