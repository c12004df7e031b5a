"""How the owners of topics are reached: with an unmodified Pulsar client, at the addresses that brokers have registered.

A token comes from the file that DAYBOOK_TOKEN_FILE names, else from DAYBOOK_TOKEN.
"""

import os
from pathlib import Path
from typing import Any

import daybook
from daybook.metadata.brokers import BrokerDirectory
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
