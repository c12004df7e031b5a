"""How the commands about topics find brokers: by their registrations in ZooKeeper."""

import daybook
from daybook.cli.connection import broker_token, tls_context
from daybook.cli.topic.admin import Admin
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
    found = [info.admin_urls for info in await registered(client)]
    urls = [(tls is not None and each.tls) or each.plain or each.tls for each in found]
    return Admin([url for url in urls if url], tls, broker_token())
