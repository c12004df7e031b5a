"""The options that all commands of the plugin have, and the API server that they lead to."""

from typing import Annotated

import typer

from daybook.cli.kubectl.api import Api

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="default: the context's")]
Everywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="in all namespaces")]
Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", help="default: KUBECONFIG, or the pod's account")
]
Context = Annotated[str | None, typer.Option("--context", help="default: the current one")]


def connect(
    namespace: str | None, kubeconfig: str | None, context: str | None, *, everywhere: bool = False
) -> tuple[Api, str]:
    """The API server, and the namespace that is meant; an empty one is all. Raises ApiError."""
    api, default = Api.connect(kubeconfig, context)
    return api, "" if everywhere else namespace or default
