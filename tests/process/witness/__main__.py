"""`python -m tests.process.witness`: run the witnesses against two brokers and print what they saw; exit code 1 if anything is wrong."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from daybook.local.cluster import LocalCluster
from daybook.local.cluster_file import BrokerEntry
from daybook.runtime.signals import exit_on_sigterm
from tests.fixtures.package_index import Say
from tests.process.witness.clients import WitnessError, go, go_version, java, java_version, say
from tests.process.witness.lookups import MisleadingLookups
from tests.process.witness.report import CASES, Sighting, parse, table, whole

BROKERS: Final = 2
LOG: Final = "{}.log"

Make = Callable[[Path, Say], list[str]]


def main() -> int:
    """0 if every witness saw what it should."""
    parser = argparse.ArgumentParser(prog="python -m tests.process.witness", description=__doc__)
    parser.add_argument("--only", choices=("java", "go"), help="one of the clients")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"only these, of {', '.join(CASES)}")
    options = parser.parse_args()
    if unknown := sorted(set(options.cases) - set(CASES)):
        parser.error(f"no such case: {', '.join(unknown)}")
    exit_on_sigterm()
    wanted = [case for case in CASES if not options.cases or case in options.cases]
    makers: dict[str, Make] = {f"Java {java_version()}": java, f"Go {go_version()}": go}
    chosen = {name: make for name, make in makers.items() if (options.only or "") in name.lower()}
    scratch = Path(tempfile.mkdtemp(prefix="daybook-witness-"))
    try:
        sightings = _run(chosen, wanted, scratch)
    except WitnessError as error:
        say(f"error: {error}")
        shutil.rmtree(scratch)
        return 1
    console = Console()
    console.print(table(sightings))
    seen = [each for found in sightings.values() for each in found]
    wrong = sum(not each.good for each in seen)
    console.print(f"{len(seen) - wrong} of {len(seen)} cases good")
    if wrong:
        console.print(f"the logs of the clients and the brokers are in {scratch}")
        return 1
    shutil.rmtree(scratch)
    return 0


def _run(makers: dict[str, Make], wanted: Sequence[str], scratch: Path) -> dict[str, list[Sighting]]:
    """What each witness saw. Raises WitnessError."""
    commands = {name: make(scratch, say) for name, make in makers.items()}
    sightings = {}
    with LocalCluster(scratch / "cluster", brokers=BROKERS) as cluster:
        for name, command in commands.items():
            with MisleadingLookups(cluster.brokers) as lookups:
                where = _addresses(cluster.brokers, lookups.url)
                log = scratch / LOG.format(name.partition(" ")[0].lower())
                sightings[name] = whole(_watch(name, [*command, *where, *wanted], log), wanted)
    return sightings


def _addresses(brokers: Sequence[BrokerEntry], lookups: str) -> list[str]:
    hosts = ",".join(broker.service_url.removeprefix("pulsar://") for broker in brokers)
    return [f"pulsar://{hosts}", brokers[0].admin_url, lookups]


def _watch(name: str, command: list[str], log: Path) -> list[Sighting]:
    """Run a witness and say what it sees; its log goes to a file."""
    seen = []
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                sighting = parse(line)
                if sighting is not None:
                    seen.append(sighting)
                    say(f"{name}: {sighting.case}: {'good' if sighting.good else 'WRONG'}")
        except BaseException:
            process.kill()
            raise
    return seen


if __name__ == "__main__":
    sys.exit(main())
