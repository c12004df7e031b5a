"""How the owners of topics are reached, at the addresses that brokers have registered: with an unmodified Pulsar client, and over the admin HTTP.

A token comes from the file that DAYBOOK_TOKEN_FILE names, else from DAYBOOK_TOKEN.
"""

import os
from pathlib import Path
from typing import Any

import daybook
from daybook.client.broker_admin import Admin
from daybook.client.broker_topics import admin_urls
from daybook.metadata.brokers import BrokerDirectory
from daybook.runtime.tls import TlsFiles, client_credentials
from daybook_spark.options import OptionError, Where


async def service_url(client: daybook.Client, where: Where, hint: str) -> str:
    """Where the registered brokers serve clients. Raises OptionError without any; `hint` ends its text, which says what to do."""
    brokers = (await BrokerDirectory(client.store, client.layout).view()).brokers.values()
    plain = [info.urls.plain for info in brokers if info.urls.plain]
    secure = [info.urls.tls for info in brokers if info.urls.tls]
    urls = secure if secure and (where.tls_ca or not plain) else plain
    if not urls:
        msg = f"no broker is registered in cluster {where.cluster}{hint}"
        raise OptionError(msg)
    scheme = urls[0].partition("://")[0]
    return f"{scheme}://" + ",".join(url.partition("://")[2] for url in urls)


async def admin_of(client: daybook.Client, where: Where) -> Admin:
    """The admin HTTP of the registered brokers: any of them sends a request on to the topic's owner. Raises OptionError without any, TlsError."""
    files = TlsFiles(where.tls_certificate, where.tls_key, where.tls_ca)
    tls = client_credentials(files).ssl_context() if files.paths else None
    brokers = (await BrokerDirectory(client.store, client.layout).view()).brokers.values()
    urls = admin_urls(brokers, secure=tls is not None)
    if not urls:
        msg = (
            f"no broker with an admin address is registered in cluster {where.cluster}, and only the owner of a topic may change it: "
            "nothing was changed; start a broker, or check the cluster's name"
        )
        raise OptionError(msg)
    return Admin(urls, tls, _token())


def client_options(where: Where) -> dict[str, Any]:
    """The security options of a Pulsar client. Raises OptionError for a token's file that cannot be read."""
    import pulsar

    options: dict[str, Any] = {}
    token = _token()
    if token:
        options["authentication"] = pulsar.AuthenticationToken(token)
    if where.tls_ca is not None:
        options["tls_trust_certs_file_path"] = str(where.tls_ca)
    if where.tls_certificate is not None and where.tls_key is not None:
        options["tls_certificate_file_path"] = str(where.tls_certificate)
        options["tls_private_key_file_path"] = str(where.tls_key)
    return options


def _token() -> str:
    file = os.environ.get("DAYBOOK_TOKEN_FILE")
    if not file:
        return os.environ.get("DAYBOOK_TOKEN", "").strip()
    try:
        return Path(file).read_text("utf-8").strip()
    except OSError as error:
        msg = f"the file {file} that DAYBOOK_TOKEN_FILE names cannot be read: {error.strerror}"
        raise OptionError(msg) from error
