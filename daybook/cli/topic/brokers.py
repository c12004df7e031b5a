"""How the commands about topics find brokers: by their registrations in ZooKeeper."""

import daybook
from daybook.cli.connection import broker_token, tls_context
from daybook.client.broker_admin import Admin
from daybook.client.broker_topics import admin_urls
from daybook.metadata.brokers import BrokerDirectory, BrokerInfo


async def registered(client: "daybook.Client") -> list[BrokerInfo]:
    """The brokers that are registered now."""
    view = await BrokerDirectory(client.store, client.layout).view()
    return list(view.brokers.values())


async def broker_urls(client: "daybook.Client") -> list[str]:
    """Where clients of Pulsar reach the brokers; over TLS if the command has TLS files."""
    secure = tls_context() is not None
    urls = [
        (secure and info.urls.tls) or info.urls.plain or info.urls.tls for info in await registered(client)
    ]
    return [url for url in urls if url]


async def admin_of(client: "daybook.Client") -> Admin:
    """The admin HTTP of the brokers; over TLS if the command has TLS files."""
    tls = tls_context()
    urls = admin_urls(await registered(client), secure=tls is not None)
    return Admin(urls, tls, broker_token())
