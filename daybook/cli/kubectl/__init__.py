"""`kubectl daybook`: pools, bookies, ledgers and topics as the API server knows them, and why something is not as it should be.

kubectl finds the program `kubectl-daybook` on the PATH. It needs no way to ZooKeeper, bookies or brokers, only the rights to read
resources, because the operator mirrors what matters into their status. What only brokers know, it asks by the API server's proxy to
their pods (`topic/`).
"""

from daybook.cli.kubectl.commands import app

__all__ = ["app"]
