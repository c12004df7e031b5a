"""`python -m bench.steps`: what an entry in a frame of its own costs a client, a bookie and a broker, without sockets and without disks.

CPU of one thread, in µs for each entry of 1 KiB, of many ledgers or topics. The bookies of the client and of the broker answer in the next
turn of the loop.
"""

from typing import Final

LEDGERS: Final = 1000
PAYLOAD: Final = bytes(1024)
