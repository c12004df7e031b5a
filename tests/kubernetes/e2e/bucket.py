"""An S3 beside the nodes, which pods reach at the address of the cluster's gateway; a process of its own, because it lives as long as the cluster's files.

It prints a line of JSON with its endpoint once it serves, and one that counts the objects of its bucket for each line it reads.
"""

import json
import sys
from typing import Final

from moto.server import ThreadedMotoServer
from pyarrow import fs

from tests.cluster.node_files import GATEWAY
from tests.fixtures.object_store import filesystem

BUCKET: Final = "daybook-cold"


def main() -> None:
    """Serve until the standard input ends."""
    server = ThreadedMotoServer(ip_address=GATEWAY, port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    store = filesystem(f"{host}:{port}", allow_bucket_creation=True)
    store.create_dir(BUCKET)
    print(json.dumps(f"{host}:{port}"), flush=True)
    for _ in sys.stdin:
        found = store.get_file_info(fs.FileSelector(BUCKET, recursive=True))
        print(json.dumps(sum(each.is_file for each in found)), flush=True)
    server.stop()


if __name__ == "__main__":
    main()
