"""The built images: what is in them, and that they work as user 65532 on a read-only root.

The name keeps it out of `make test`: `make check-images` runs it.
"""

import asyncio
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pulsar
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from daybook.metadata.instance import ensure_cluster
from daybook.metadata.layout import Layout
from daybook.metadata.store.zookeeper import ZooKeeperStore
from daybook.runtime.clock import unix_ms
from daybook.runtime.ports import HeldPort
from tests.kubernetes.images.build import TARGETS, build
from tests.kubernetes.images.container import Image, end, stop
from tools.compiled import MODULES, names

TAG = "dev"
SIZES_MB = {"bookie": 250, "broker": 450, "operator": 400, "spark": 1200, "zookeeper": 300}
"""What an archive may weigh, with its base; not compressed."""
WAIT_S = 90.0
COMPILED = {
    "bookie": ["daybook", "daybook_bookie"],
    "broker": ["daybook", "daybook_broker"],
    "spark": ["daybook"],
}
"""The packages that an image has of tools/compiled's."""
UNWANTED = ("gcc", "cc", "make", "git", "curl", "wget", "javac")

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def archives() -> dict[str, Path]:
    return build(TAG)


@pytest.fixture(scope="module", params=TARGETS)
def image(request: pytest.FixtureRequest, archives: dict[str, Path]) -> Iterator[Image]:
    with Image(request.param, TAG) as unpacked:
        yield unpacked


@pytest.mark.parametrize("target", TARGETS)
def test_an_archive_is_small(archives: dict[str, Path], target: str) -> None:
    assert archives[target].stat().st_size < SIZES_MB[target] * 1_000_000


def test_there_is_no_compiler_no_cache_and_no_wheel(image: Image) -> None:
    path = [image.root / folder for folder in ("usr/bin", "usr/local/bin", "opt/daybook/bin", "bin")]
    assert not [name for name in UNWANTED for folder in path if (folder / name).exists()]
    assert not list(image.root.glob("opt/**/*.whl"))
    assert not (image.root / "wheelhouse").exists()
    assert not (image.root / "source").exists()
    assert not list(image.root.glob("opt/daybook/lib/python3*/site-packages/pip"))
    assert not list((image.root / "tmp").iterdir())


def test_it_runs_as_nobody_and_can_write_nowhere_but_in_tmp(image: Image) -> None:
    code = (
        "import os\nprint(os.getuid(), os.getgroups())\n"
        "open('/tmp/a', 'w').close()\n"
        "for path in ('/a', '/opt/a', '/etc/a'):\n"
        "    try: open(path, 'w')\n"
        "    except OSError as error: print(type(error).__name__, error.errno)\n"
    )
    status, output = image.run("python3", "-c", code)
    assert status == 0, output
    first, *rest = output.splitlines()
    assert first.startswith("65532 ")
    assert len(rest) == 3, "each place refused"
    assert image.config["User"] == "65532:65532"


def test_a_bookies_image_has_its_commands(archives: dict[str, Path]) -> None:
    with Image("bookie", TAG) as image:
        assert image.config["Cmd"] == ["daybook-bookie", "start"]
        assert image.run("daybook-bookie", "version")[0] == 0
        status, output = image.run("daybook", "recover", "--help")
        assert status == 0, output
        status, output = image.run("python3", "-c", "import getpass; print(getpass.getuser())")
        assert output.strip() == "daybook", (
            "the user has a name: who authorises a replacement is written down"
        )


def test_a_brokers_image_has_its_commands(archives: dict[str, Path]) -> None:
    with Image("broker", TAG) as image:
        assert image.config["Cmd"] == ["daybook-broker", "start"]
        assert image.run("daybook-broker", "version")[0] == 0
        status, output = image.run("daybook", "topic", "--help")
        assert status == 0, output


@pytest.mark.parametrize("target", ["bookie", "broker", "spark"])
def test_what_runs_for_each_frame_is_compiled(archives: dict[str, Path], target: str) -> None:
    """In the packages that the image has: a broker has the client, not the bookie."""
    wanted = {name for package in COMPILED[target] for name in names(MODULES[package])}
    code = (
        "import sys\nfrom importlib import import_module\n"
        "for name in sys.argv[1:]:\n"
        "    print(name, import_module(name).__file__.endswith('.so'))\n"
    )
    with Image(target, TAG) as image:
        status, output = image.run("python3", "-c", code, *sorted(wanted))
    assert status == 0, output
    assert {line for line in output.splitlines() if not line.endswith(" True")} == set()
    assert len(output.splitlines()) == len(wanted)


def test_an_operators_image_has_its_command(archives: dict[str, Path]) -> None:
    with Image("operator", TAG) as image:
        assert image.config["Cmd"] == ["daybook-operator", "run"]
        status, output = image.run("daybook-operator", "--help")
        assert status == 0, output


def test_sparks_image_runs_jobs_and_executors(archives: dict[str, Path]) -> None:
    """A job in one container, with Java, workers in Python and the data source; an executor that lacks its driver."""
    job = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "print('rows', spark.range(1000).rdd.map(lambda row: 1).sum())\n"
        "try: spark.read.format('daybook').option('topik', 'a').load()\n"
        "except Exception as error: print('topic?' in str(error))\n"
    )
    with Image("spark", TAG) as image:
        assert image.config["Cmd"] == ["daybook", "spark", "--help"]
        # a container's runtime would give it a host name that it can look up
        status, output = image.run("python3", "-c", job, SPARK_LOCAL_IP="127.0.0.1")
        assert status == 0, output
        assert "rows 1000\nTrue\n" in output
        status, output = image.run("executor")
        assert (status, "SPARK_DRIVER_URL is not set" in output) == (2, True), output


def until(check: Callable[[], bool]) -> None:
    """Ask until `check()` is true: a process that starts has no event for us."""
    pause, deadline = threading.Event(), time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < deadline, "it did not come up"
        pause.wait(0.2)


def get(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def is_serving(port: int) -> bool:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            request = health_pb2.HealthCheckRequest(service="readiness")
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def make_cluster(zookeeper: str, name: str) -> None:
    store = await ZooKeeperStore.open(zookeeper)
    try:
        await ensure_cluster(store, Layout(name), created_at_ms=unix_ms())
    finally:
        await store.close()


@contextmanager
def zookeeper_and_bookie(folder: Path) -> Iterator[tuple[str, Image, int]]:
    """A server that serves and a bookie that is registered: ZooKeeper's address, the bookie's image, its metrics port."""
    held = [HeldPort() for _ in range(5)]
    client, zookeeper_health, data_port, health_port, metrics_port = (each.port for each in held)
    for name in ("journal", "store", "data"):
        (folder / name).mkdir()
    processes = []
    address = f"127.0.0.1:{client}"
    with Image("zookeeper", TAG) as zookeeper, Image("bookie", TAG) as bookie:
        try:
            variables = {
                "ZOOKEEPER_CLIENT_PORT": str(client),
                "ZOOKEEPER_HEALTH_PORT": str(zookeeper_health),
                "ZOOKEEPER_HEAP_MB": "64",
            }
            processes.append(zookeeper.start(variables=variables, volumes={"/data": folder / "data"}))
            until(lambda: get(zookeeper_health, "/readyz") == 200)
            asyncio.run(make_cluster(address, "images"))  # on Kubernetes the operator does
            settings = {
                "ZOOKEEPER": address,
                "CLUSTER": "images",
                "BOOKIE_ID": "images.bk-0",
                "JOURNAL_DIR": "/var/lib/daybook/journal",
                "STORE_DIR": "/var/lib/daybook/store",
                "ADDRESS": f"127.0.0.1:{data_port}",
                "HEALTH_ADDRESS": f"127.0.0.1:{health_port}",
                "METRICS_ADDRESS": f"127.0.0.1:{metrics_port}",
            }
            given = {f"DAYBOOK_BOOKIE_{name}": value for name, value in settings.items()}
            volumes = {f"/var/lib/daybook/{role}": folder / role for role in ("journal", "store")}
            processes.append(bookie.start(variables=given, volumes=volumes))
            until(lambda: is_serving(health_port))
            yield address, bookie, metrics_port
            assert get(zookeeper_health, "/metrics") == 200
        finally:
            said = [end(process) for process in processes]
            print(*said, sep="\n")  # pytest shows it where the test failed
            for each in held:
                each.close()


def test_images_of_zookeeper_and_bookie_work_together(archives: dict[str, Path], tmp_path: Path) -> None:
    """A server serves, a bookie registers, and entries written by one process are read by another."""
    with zookeeper_and_bookie(tmp_path) as (address, bookie, metrics_port):
        where = {"DAYBOOK_ZOOKEEPER": address, "DAYBOOK_CLUSTER": "images"}
        script = (
            "ledger=$(seq 1 1000 | daybook ledger write --ensemble-size 1 --write-quorum 1 --ack-quorum 1 2>/dev/null)\n"
            'test "$(daybook ledger read "$ledger")" = "$(seq 1 1000)" && echo all read\n'
        )
        status, output = bookie.run("sh", "-euc", script, **where)
        assert (status, output) == (0, "all read\n")
        assert get(metrics_port, "/metrics") == 200
    assert list((tmp_path / "journal").iterdir())


def test_the_image_of_a_broker_serves_topics_and_probes(archives: dict[str, Path], tmp_path: Path) -> None:
    """As nobody, on a read-only root without a volume: Pulsar's client publishes and receives, and SIGTERM is an orderly end."""
    held = [HeldPort() for _ in range(4)]
    port, admin_port, health_port, metrics_port = (each.port for each in held)
    with zookeeper_and_bookie(tmp_path) as (address, _, _), Image("broker", TAG) as image:
        settings = {
            "ZOOKEEPER": address,
            "CLUSTER": "images",
            "BROKER_ID": "images-0",
            "ADDRESS": f"127.0.0.1:{port}",
            "ADMIN_ADDRESS": f"127.0.0.1:{admin_port}",
            "HEALTH_ADDRESS": f"127.0.0.1:{health_port}",
            "METRICS_ADDRESS": f"127.0.0.1:{metrics_port}",
            "ENSEMBLE_SIZE": "1",
            "WRITE_QUORUM": "1",
            "DURABILITY": "sync",
            "DEGRADE": "never",
        }
        broker = image.start(variables={f"DAYBOOK_BROKER_{name}": value for name, value in settings.items()})
        try:
            until(lambda: is_serving(health_port))
            client = pulsar.Client(f"pulsar://127.0.0.1:{port}")
            consumer = client.subscribe("images", "s")
            producer = client.create_producer("images")
            for number in range(100):
                producer.send_async(b"%d" % number, None)
            producer.flush()
            found = [consumer.receive(int(1000 * WAIT_S)) for _ in range(100)]
            assert [message.data() for message in found] == [b"%d" % number for number in range(100)]
            consumer.acknowledge_cumulative(found[-1])
            client.close()
            assert get(metrics_port, "/metrics") == 200
            assert get(admin_port, "/admin/v2/brokers/health") == 200
            stop(broker)
            assert broker.wait(WAIT_S) == 0
        finally:
            print(end(broker))
            for each in held:
                each.close()
