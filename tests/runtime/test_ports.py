"""Ports, addresses and clocks."""

import socket
from pathlib import Path

import pytest

from daybook.runtime import ports
from daybook.runtime.ports import Address, PortInUseError, check_port_free, free_ports, parse_address


def test_free_ports_differ_and_can_be_bound() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    for port in found:
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


def test_a_free_port_is_none_that_the_kernel_gives_to_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = tmp_path / "range"
    kernels.write_text("11010\t60999\n", encoding="ascii")
    monkeypatch.setattr(ports, "_RANGE", kernels)
    assert all(10_000 <= port < 11_010 for port in free_ports(50))


def test_more_ports_than_there_are_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_first_of_connections", lambda: 10_002)
    with pytest.raises(OSError, match=r"no 5 ports from 10000 to 10001 of 127\.0\.0\.1 are free: stop what"):
        free_ports(5)


@pytest.mark.parametrize("text", ["127.0.0.1:3181", "bookie-0.pool:0", "[::1]:3181"])
def test_an_address_reads_back_as_written(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    "text", ["", "host", ":3181", "host:", "host:70000", "host:-1", "::1:3181", "[]:1", "[h]:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address: write host:port"):
        parse_address(text)


def test_a_port_is_refused_while_something_listens_on_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address("127.0.0.1", server.getsockname()[1])
        with pytest.raises(PortInUseError, match=f"{address.port} is in use .* set another listen address"):
            check_port_free(address, "listen address")
    check_port_free(address, "listen address")
