"""Channels between clients and bookies, with the limits that both ends must agree on.

A message may be as large as `MESSAGE_BYTES_MAX` plus its header. Keep-alive pings distinguish a dead peer from an idle one:
without them a long-lived stream over a dead connection would wait for the kernel's time-out, which takes minutes.
"""

from typing import Final

import grpc
import grpc.aio

from daybook.core.ids import MESSAGE_BYTES_MAX

WIRE_MESSAGE_BYTES_MAX: Final = MESSAGE_BYTES_MAX + 64 * 1024
"""What a connection carries: the largest message and its header."""
KEEPALIVE_MS: Final = 10_000
KEEPALIVE_TIMEOUT_MS: Final = 5_000

_MESSAGE_OPTIONS: Final = (
    ("grpc.max_send_message_length", WIRE_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", WIRE_MESSAGE_BYTES_MAX),
)

CLIENT_OPTIONS: Final = (
    *_MESSAGE_OPTIONS,
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Otherwise channels with equal options share a connection, and with it its flow control.
    ("grpc.use_local_subchannel_pool", 1),
)

SERVER_OPTIONS: Final = (
    *_MESSAGE_OPTIONS,
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    # Two servers on one port would share its connections, and each would receive half of a client's frames.
    ("grpc.so_reuseport", 0),
)


def server_name_options(server_name: str | None) -> tuple[tuple[str, str], ...]:
    """Options that check the server's certificate against `server_name` instead of the address's host."""
    return (("grpc.ssl_target_name_override", server_name),) if server_name else ()


def open_channel(
    address: str, credentials: grpc.ChannelCredentials | None = None, server_name: str | None = None
) -> grpc.Channel:
    """A blocking channel to `address` (host:port); plaintext without `credentials`."""
    options = (*CLIENT_OPTIONS, *server_name_options(server_name))
    if credentials is None:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, credentials, options=options)


def open_aio_channel(
    address: str, credentials: grpc.ChannelCredentials | None = None, server_name: str | None = None
) -> grpc.aio.Channel:
    """As `open_channel`, for asyncio."""
    options = (*CLIENT_OPTIONS, *server_name_options(server_name))
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)
