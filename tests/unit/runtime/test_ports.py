"""Ports, held and free, and addresses."""

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from daybook.runtime import ports
from daybook.runtime.ports import Address, HeldPort, PortInUseError, check_port_free, parse_address


def listen(port: int) -> socket.socket:
    """Listen as servers do; Python's `create_server` sets SO_REUSEADDR, too."""
    return socket.create_server(("127.0.0.1", port))


def test_only_a_server_gets_a_held_port() -> None:
    with HeldPort() as held:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(held.address)
        with HeldPort(wanted=held.port) as second:
            assert second.port != held.port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(held.address)
        for _ in range(2):  # it is held before the server listens, meanwhile, and after the server has ended
            check_port_free(held.address, "address")
            with listen(held.port):
                socket.create_connection(held.address).close()
                with pytest.raises(PortInUseError):
                    check_port_free(held.address, "address")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(held.address)


def test_a_grpc_server_listens_on_a_held_port() -> None:
    with HeldPort() as held:
        server = grpc.server(ThreadPoolExecutor(1))
        assert server.add_insecure_port(str(held.address)) == held.port
        server.start()
        with grpc.insecure_channel(str(held.address)) as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
        server.stop(None).wait()


def test_the_wanted_port_is_held_again_despite_lingering_connections() -> None:
    with HeldPort() as held, listen(held.port) as server:
        client = socket.create_connection(held.address)
        accepted, _ = server.accept()
        accepted.close()  # the side that closes first keeps the address for a minute
        client.close()
    with HeldPort(wanted=held.port) as again:
        assert again.port == held.port
        with listen(held.port), HeldPort(wanted=held.port) as other:
            assert other.port != held.port


def test_a_held_port_is_outside_the_kernels_range_for_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = tmp_path / "range"
    kernels.write_text("11010\t60999\n", encoding="ascii")
    monkeypatch.setattr(ports, "_RANGE", kernels)
    held = _hold(50)
    assert len(set(held)) == 50
    assert all(10_000 <= port < 11_010 for port in held)


def _hold(count: int) -> list[int]:
    with ExitStack() as stack:
        return [stack.enter_context(HeldPort()).port for _ in range(count)]


def test_a_lack_of_free_ports_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_first_of_connections", lambda: 10_002)
    with pytest.raises(
        OSError, match=r"no port from 10000 to 10001 of 127\.0\.0\.1 is free: stop the processes"
    ):
        _hold(3)


@pytest.mark.parametrize("text", ["127.0.0.1:3181", "bookie-0.pool:0", "[::1]:3181"])
def test_an_address_reads_back_as_written(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "text", ["", "host", ":3181", "host:", "host:70000", "host:-1", "::1:3181", "[]:1", "[h]:1"]
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address: write host:port"):
        parse_address(text)


def test_a_port_is_refused_while_something_listens_on_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address("127.0.0.1", server.getsockname()[1])
        with pytest.raises(PortInUseError, match=f"{address.port} is in use .* set another listen address"):
            check_port_free(address, "listen address")
    check_port_free(address, "listen address")
