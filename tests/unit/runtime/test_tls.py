"""TLS over real sockets: which clients are accepted, and certificates that change under a running server."""

import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from daybook.runtime.tls import ClientTls, TlsError, TlsFiles, server_credentials
from tests.unit.runtime.certificates import Authority, new_authority

CA = new_authority()
OTHER_CA = new_authority("another CA")


class Echo(grpc.GenericRpcHandler):
    """Answers every call with its own bytes."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        return grpc.unary_unary_rpc_method_handler(lambda request, _: request)


@contextmanager
def serving(files: TlsFiles) -> Iterator[int]:
    """An echo server with mutual TLS; yields its port."""
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Echo()])
    port = server.add_secure_port("127.0.0.1:0", server_credentials(files))
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


def call(port: int, credentials: grpc.ChannelCredentials) -> bytes:
    """One call on a new connection; raises grpc.RpcError if the handshake fails."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(f"localhost:{port}", credentials, options) as channel:
        echo: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/echo/Echo")
        return echo(b"hello", timeout=10)


def assert_refused(port: int, files: TlsFiles, reason: str = "") -> None:
    """The handshake fails, at once and for `reason`."""
    with pytest.raises(grpc.RpcError) as raised:
        call(port, ClientTls(files).credentials)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert reason in str(raised.value.details())


def test_both_sides_with_certificates_of_the_ca_connect(tmp_path: Path) -> None:
    with serving(CA.issue(tmp_path, "server")) as port:
        assert call(port, ClientTls(CA.issue(tmp_path, "client")).credentials) == b"hello"


def test_a_client_without_a_certificate_is_refused(tmp_path: Path) -> None:
    files = CA.issue(tmp_path, "server")
    with serving(files) as port:
        assert_refused(port, TlsFiles(ca=files.ca))


def test_a_client_of_another_ca_is_refused(tmp_path: Path) -> None:
    with serving(CA.issue(tmp_path, "server")) as port:
        assert_refused(port, OTHER_CA.issue(tmp_path, "client", trusts=CA))


def test_an_expired_client_is_refused(tmp_path: Path) -> None:
    with serving(CA.issue(tmp_path, "server")) as port:
        assert_refused(port, CA.issue(tmp_path, "client", days_left=-1))


@pytest.mark.parametrize(
    ("authority", "host", "days_left", "trusts", "reason"),
    [
        pytest.param(OTHER_CA, "localhost", 1, CA, "unable to get local issuer", id="of another CA"),
        pytest.param(CA, "localhost", -1, CA, "certificate has expired", id="expired"),
        pytest.param(CA, "elsewhere.example", 1, CA, "Hostname Verification", id="for another name"),
    ],
)
def test_a_client_refuses_a_server_whose_certificate_is(
    tmp_path: Path, authority: Authority, host: str, days_left: int, trusts: Authority, reason: str
) -> None:
    with serving(authority.issue(tmp_path, "server", host=host, days_left=days_left, trusts=trusts)) as port:
        assert_refused(port, CA.issue(tmp_path, "client"), reason)


def test_certificates_rotate_without_a_restart(tmp_path: Path) -> None:
    with serving(CA.issue(tmp_path, "server")) as port:
        old = ClientTls(CA.issue(tmp_path, "client"))
        assert call(port, old.credentials) == b"hello"
        assert not old.is_stale()
        OTHER_CA.issue(tmp_path, "server")
        assert_refused(
            port, TlsFiles(tmp_path / "client.crt", tmp_path / "client.key", tmp_path / "client.ca")
        )
        files = OTHER_CA.issue(tmp_path, "client")
        assert old.is_stale()
        new = ClientTls(files)
        assert not new.is_stale()
        assert call(port, new.credentials) == b"hello"


def test_a_rotation_that_is_half_done_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = CA.issue(tmp_path, "server")
    assert files.key is not None
    client = ClientTls(CA.issue(tmp_path, "client"))
    with serving(files) as port, caplog.at_level(logging.ERROR):
        os.replace(CA.issue(tmp_path, "next").key or "", files.key)
        assert call(port, client.credentials) == b"hello"
        assert call(port, client.credentials) == b"hello"
        complaints = [line for line in caplog.messages if "cannot be used together" in line]
        assert len(complaints) == 1, "the same failure is logged once"
        os.replace(tmp_path / "next.crt", files.certificate or "")
        assert call(port, client.credentials) == b"hello"
    assert "new TLS files are in use" not in caplog.text


def test_half_a_pair_is_refused() -> None:
    with pytest.raises(TlsError, match="certificate and key together"):
        TlsFiles(certificate=Path("server.crt"))


def test_a_server_without_a_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="needs a certificate"):
        server_credentials(TlsFiles(ca=tmp_path / "ca"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files = CA.issue(tmp_path, "server")
    assert files.ca is not None
    files.ca.unlink()
    with pytest.raises(TlsError, match=r"server\.ca cannot be read: No such file"):
        server_credentials(files)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    files = CA.issue(tmp_path, "server")
    with pytest.raises(TlsError, match="cannot be used together"):
        ClientTls(TlsFiles(files.certificate, CA.issue(tmp_path, "other").key))


@pytest.mark.parametrize("content", [b"", b"no certificate", "−".encode()])
def test_a_ca_file_without_a_certificate_is_refused(tmp_path: Path, content: bytes) -> None:
    ca = tmp_path / "ca"
    ca.write_bytes(content)
    with pytest.raises(TlsError, match="contains no usable certificate"):
        ClientTls(TlsFiles(ca=ca))
