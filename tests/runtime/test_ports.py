"""Ports, addresses and clocks."""

import socket

import pytest

from daybook.runtime.clock import monotonic_ms, unix_ms
from daybook.runtime.ports import Address, PortInUseError, check_port_free, free_ports, parse_address


def test_free_ports_differ_and_can_be_bound() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


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


def test_the_monotonic_clock_does_not_go_back() -> None:
    readings = [monotonic_ms() for _ in range(1000)]
    assert readings == sorted(readings)


def test_unix_time_is_in_milliseconds() -> None:
    assert 1_700_000_000_000 < unix_ms() < 10_000_000_000_000
