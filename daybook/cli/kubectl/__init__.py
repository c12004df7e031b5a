"""`kubectl daybook`: pools, bookies and ledgers as the API server knows them, and why something is not as it should be.

kubectl finds the program `kubectl-daybook` on the PATH. It needs no way to ZooKeeper or to bookies, only the rights to read
resources, because the operator mirrors what matters into their status.
"""

from daybook.cli.kubectl.commands import app

__all__ = ["app"]
