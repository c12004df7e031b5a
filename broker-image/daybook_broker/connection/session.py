"""CONNECT, AUTH_RESPONSE, PING and PONG."""

from collections.abc import Mapping
from typing import Final

import daybook
from daybook.core.format.frame import Buffer
from daybook.wire.pulsar.frames import encode_frame
from daybook.wire.pulsar.pulsar_pb2 import BaseCommand, CommandConnected, CommandPong, FeatureFlags
from daybook_broker.connection.connection import Connection, Handler
from daybook_broker.errors import AuthenticationError, NotAllowedError

PROTOCOL_VERSION: Final = 21
"""Of the .proto; a client of an earlier version is served as that."""
PONG: Final = encode_frame(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))


def connect(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """CONNECT: greet the client. Flags are set for what this broker has, and for nothing else."""
    if connection.is_connected:
        msg = "this connection has said CONNECT before: open another one"
        raise NotAllowedError(msg)
    wish = command.connect
    try:
        identity = connection.broker.access.identify(
            wish.auth_method_name, wish.auth_data, connection.certificate
        )
    except AuthenticationError as error:
        connection.fail(error)
        return
    version = min(wish.protocol_version, PROTOCOL_VERSION)
    connection.connected(wish.client_version, version, identity)
    flags = FeatureFlags(
        supports_auth_refresh=True,
        supports_topic_watchers=True,
        supports_get_partitioned_metadata_without_auto_creation=True,
    )
    answer = CommandConnected(
        server_version=f"Daybook {daybook.__version__}",
        protocol_version=version,
        max_message_size=connection.broker.settings.message_bytes_max,
        feature_flags=flags,
    )
    connection.send_command(BaseCommand(type=BaseCommand.CONNECTED, connected=answer))
    connection.credentials.begin(
        identity, wish.auth_method_name, can_refresh=wish.feature_flags.supports_auth_refresh
    )


def auth_response(connection: Connection, command: BaseCommand, _: Buffer) -> None:
    """AUTH_RESPONSE: the client shows a newer token, as it was asked to."""
    try:
        connection.credentials.answered(command.authResponse)
    except AuthenticationError as error:
        connection.fail(error)


def ping(connection: Connection, _command: BaseCommand, _: Buffer) -> None:
    """PING: the client asks whether this broker is there."""
    connection.send(PONG)


def pong(connection: Connection, _command: BaseCommand, _: Buffer) -> None:
    """PONG: the client is there."""
    connection.keep_alive.answered()


HANDLERS: Final[Mapping[int, Handler]] = {
    BaseCommand.CONNECT: connect,
    BaseCommand.AUTH_RESPONSE: auth_response,
    BaseCommand.PING: ping,
    BaseCommand.PONG: pong,
}
