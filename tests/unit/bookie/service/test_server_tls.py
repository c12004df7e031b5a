"""The bookie behind mutual TLS: strangers are refused, and certificates are renewed under open streams."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from daybook.core.errors import Code
from daybook.runtime.tls import ClientTls, TlsFiles, server_credentials
from daybook.wire import bookie_pb2 as pb
from daybook.wire.channel import open_channel
from daybook.wire.service import BookieStub
from tests.unit.bookie.server_kit import RunningBookie, frame_of
from tests.unit.bookie.stream_kit import GrpcPipe, Stream
from tests.unit.runtime.certificates import new_authority

StartBookie = Callable[..., RunningBookie]


def connect(bookie: RunningBookie, files: TlsFiles) -> BookieStub:
    """A client with these certificates."""
    address = bookie.address.replace("127.0.0.1", "localhost")
    return BookieStub(open_channel(address, ClientTls(files).credentials))


def is_refused(bookie: RunningBookie, files: TlsFiles) -> bool:
    """Whether a client with these certificates gets no answer."""
    try:
        connect(bookie, files).get_info(pb.GetInfoRequest(), timeout=5)
    except grpc.RpcError as error:
        return error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return False


def test_mutual_tls_carries_streams_and_refuses_strangers(start_bookie: StartBookie, tmp_path: Path) -> None:
    authority, stranger = new_authority(), new_authority("another CA")
    bookie = start_bookie(credentials=server_credentials(authority.issue(tmp_path, "server")))
    bookie.create_ledger(1)
    stream = Stream(GrpcPipe(connect(bookie, authority.issue(tmp_path, "client"))))
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    assert is_refused(bookie, stranger.issue(tmp_path, "stranger", trusts=authority)), (
        "wrong CA of the client"
    )
    assert is_refused(bookie, authority.issue(tmp_path, "late", days_left=-1)), "expired client"
    assert is_refused(bookie, authority.issue(tmp_path, "wary", trusts=stranger)), "wrong CA of the server"
    assert stream.add(frame_of(1, 1, [b"b"])) == {}
    stream.close()


@pytest.mark.parametrize("wrong", [{"host": "elsewhere"}, {"days_left": -1}])
def test_a_server_with_a_wrong_name_or_an_old_certificate_gets_no_clients(
    start_bookie: StartBookie, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    authority = new_authority()
    bookie = start_bookie(credentials=server_credentials(authority.issue(tmp_path, "server", **wrong)))
    assert is_refused(bookie, authority.issue(tmp_path, "client"))


def test_certificates_rotate_under_an_open_stream_without_a_restart(
    start_bookie: StartBookie, tmp_path: Path
) -> None:
    old, new = new_authority("old CA"), new_authority("new CA")
    bookie = start_bookie(credentials=server_credentials(old.issue(tmp_path, "server")))
    bookie.create_ledger(1)
    stream = Stream(GrpcPipe(connect(bookie, old.issue(tmp_path, "client"))))
    stream.attach(1)
    new.issue(tmp_path, "server")
    assert not is_refused(bookie, new.issue(tmp_path, "renewed"))
    assert is_refused(bookie, old.issue(tmp_path, "outdated"))
    assert stream.add(frame_of(1, 0, [b"a"])) == {}, "the open stream goes on"
    stream.close()
