"""A real bookie process under hostile clients, round after round: it lives, serves others, and stays as large as it was.

Usage: python -m tests.process.fuzz.wire [--minutes N] [--seed S]. `make test` makes one round of it (tests/process/fuzz/test_wire.py).
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from daybook.core.errors import Code
from daybook.core.format.entries import decode_entries
from daybook.core.format.frame import split_message
from daybook.runtime.ports import parse_address
from daybook.wire import bookie_pb2 as pb
from daybook.wire.channel import open_channel
from daybook.wire.messages import decode_read
from daybook.wire.service import BookieStub
from tests.paths import ROOT
from tests.process.chaos.records import commit, write_record
from tests.process.fuzz.attacks import ATTACKS, HEALTHY, HealthyClient
from tests.process.fuzz.lane_attacks import LANE_ATTACKS
from tests.unit.bookie.server_kit import MIB, eventually
from tests.unit.bookie.stream_kit import KEY, WAIT_S, GrpcPipe, LanePipe, Stream

ALL_ATTACKS: Final = {**ATTACKS, **LANE_ATTACKS}
"""Those over gRPC and those over the lane."""
GROWTH_BYTES_MAX: Final = 256 * MIB
"""Write cache (two of 32 MiB), the journal's queue (32), some messages of 16 and what gRPC holds of them."""


class Process:
    """The bookie's process and healthy clients of it."""

    def __init__(self, directory: Path) -> None:
        """Start it, and wait until it serves."""
        self._ready = directory / "ready.json"
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.process.fuzz.bookie_process", str(directory)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        try:
            self._connect()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _connect(self) -> None:
        assert any(
            eventually(lambda: self._ready.exists() or self.process.poll() is not None) for _ in range(4)
        ), self.log
        assert self.process.poll() is None, self.log
        self.addresses = json.loads(self._ready.read_text(encoding="utf-8"))
        self.address = self.addresses["address"]
        self.channel = open_channel(self.address)
        self.stub = BookieStub(self.channel)
        over_grpc = Stream(GrpcPipe(self.stub), "healthy")
        self.lane_address = over_grpc.hello.lane_address
        over_lane = Stream(LanePipe(parse_address(self.lane_address)), "healthy, over the lane")
        self.healthy = [
            HealthyClient(ledger_id, stream, self._read)
            for ledger_id, stream in zip(HEALTHY, (over_grpc, over_lane), strict=True)
        ]
        self.step()
        self.size_bytes = self.rss_bytes()

    @property
    def log(self) -> str:
        """What it said."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def tracebacks(self) -> list[str]:
        """Errors that nobody expected, but for what gRPC itself says of requests that are no protobuf."""
        lines = [line for line in self.log.splitlines() if "Traceback" in line]
        return [line for line in lines if "Exception deserializing message" not in line]

    def rss_bytes(self) -> int:
        """Memory of its own that is resident."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(self.log)

    def liveness(self) -> str:
        """What the probe receives."""
        with grpc.insecure_channel(self.addresses["health_address"]) as channel:
            request = health_pb2.HealthCheckRequest(service="liveness")
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=WAIT_S)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    def step(self) -> None:
        """The healthy clients work; raises if the bookie does not serve them."""
        for healthy in self.healthy:
            healthy.step()

    @property
    def appended(self) -> int:
        """How often they have worked."""
        return min(healthy.appended for healthy in self.healthy)

    def _read(self, ledger_id: int, entry: int) -> bytes:
        request = pb.ReadRequest(
            ledger_id=ledger_id, first_entry=entry, last_entry=entry, bytes_max=1, key=KEY
        )
        found: dict[int, bytes] = {}
        for message in self.stub.read(request, timeout=WAIT_S):
            header, frames = decode_read(message)
            assert header.code == Code.OK
            for frame, offset in split_message(frames):
                found |= dict(decode_entries(frames, frame, offset)[0])
        return found[entry]

    def end(self) -> int:
        """Stop it; its exit code."""
        self.channel.close()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(2 * WAIT_S)


def withstand(bookie: Process, name: str, random: Random) -> int:
    """Attack while healthy clients work; how many messages or calls it was. Raises AssertionError."""
    attack, amount = ALL_ATTACKS[name]
    address = bookie.lane_address if name in LANE_ATTACKS else bookie.address
    failures: list[BaseException] = []
    sent: list[int] = []

    def run() -> None:
        try:
            sent.append(attack(address, random, amount))
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            failures.append(error)

    attacker = threading.Thread(target=run)
    attacker.start()
    before = bookie.appended
    while attacker.is_alive() or bookie.appended < before + 3:
        bookie.step()
        assert bookie.process.poll() is None, bookie.log[-3000:]
        grown = bookie.rss_bytes() - bookie.size_bytes
        assert grown < GROWTH_BYTES_MAX, f"it grew by {grown // MIB} MiB"
    attacker.join()
    if failures:
        raise failures[0]
    assert sent[0] > 0
    assert bookie.liveness() == "SERVING"
    assert not bookie.tracebacks(), bookie.tracebacks()[0][:3000]
    return sent[0]


def main() -> int:
    """See the module; 1 if the bookie did not withstand an attack."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.fuzz.wire", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random, counts, violations = Random(options.seed), Counter[str](), 0
    began, made_at = monotonic(), commit()
    with tempfile.TemporaryDirectory() as directory:
        bookie = Process(Path(directory))
        try:
            while not violations and monotonic() - began < 60 * options.minutes:
                name = random.choice(sorted(ALL_ATTACKS))
                try:
                    counts[name] += withstand(bookie, name, random)
                except AssertionError as error:
                    violations = 1
                    print(f"{name}, after {dict(counts)}: {error}")
        finally:
            if bookie.process.poll() is None:
                bookie.end()
    seconds = monotonic() - began
    file = write_record("fuzz: over the wire", options.seed, counts, violations, seconds, made_at=made_at)
    print(f"{dict(sorted(counts.items()))}\nviolations: {violations}, noted in {file}")
    return violations


if __name__ == "__main__":
    sys.exit(main())
