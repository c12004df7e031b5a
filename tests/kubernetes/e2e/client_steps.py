"""The steps of `make e2e` in which people and programs use topics: a client outside the cluster, and `kubectl daybook topic`."""

import json
import os
import subprocess
import sys
from typing import Final

from tests.kubernetes.e2e.broker_steps import BROKERS, LISTENER, NODE_PORT, TAKE_OVER_S
from tests.kubernetes.e2e.repairs import StepError
from tests.kubernetes.e2e.world import BROKER, World
from tests.paths import ROOT

OUTSIDE_S: Final = 300.0


def outside_client(world: World) -> str:
    """A client on a machine beside the nodes, which reaches no pod, publishes and consumes by the Services' node ports."""
    address = next(iter(world.cluster.nodes.values())).address
    urls = ",".join(f"{address}:{NODE_PORT + number}" for number in range(BROKERS))
    pods = [world.get(f"pod/{BROKER}-{number}")["status"]["podIP"] for number in range(BROKERS)]
    words = [sys.executable, "-m", "tests.kubernetes.e2e.outside", f"pulsar://{urls}", LISTENER, *pods]
    done = subprocess.run(
        world.cluster.command_outside(*words),
        env={**os.environ},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=OUTSIDE_S,
        check=False,
    )
    if done.returncode:
        raise StepError(f"the client outside said:\n{(done.stdout + done.stderr)[-3000:]}")
    found = json.loads(done.stdout)
    return f"{found['messages']} messages on {found['topics']} topics by {urls}, first receipt after {found['first_s']:.1f} s"


def plugin(world: World) -> str:
    """Every `kubectl daybook topic` command, on a topic that is in use."""
    assert world.topics is not None
    topic = world.topics.ask("topics")[0]
    listed = {each["topic"]: each for each in world.daybook_json("topic", "list")}
    if topic not in listed or listed[topic]["serving"] != "served":
        raise StepError(f"`topic list` has not {topic}: {listed}")
    before = world.daybook_json("topic", "owner", topic)[0]
    report = world.daybook_json("topic", "stats", topic)[topic]
    if report["broker"]["broker"] != before["owner"] or not report["producers"]:
        raise StepError(f"`topic stats` says {report}, and `topic owner` {before}")
    subscriptions = {
        each["name"] for each in world.daybook_json("topic", "backlog", topic)[topic]["subscriptions"]
    }
    if not {"exclusive", "failover"} <= subscriptions:
        raise StepError(f"`topic backlog` has the subscriptions {subscriptions}")
    (other,) = {f"{BROKER}-{number}" for number in range(BROKERS)} - {before["pod"]}
    world.topics.ask("gap")
    world.daybook("topic", "unload", topic, "--to", other)
    world.until(
        f"{other} serves it",
        lambda: world.daybook_json("topic", "owner", topic)[0]["pod"] == other,
        TAKE_OVER_S,
    )
    world.published()
    gap_s = float(world.topics.ask("gap"))
    steps = {
        each["step"]: each for each in world.daybook_json("topic", "explain", topic, codes=(0, 1))[0]["steps"]
    }
    if any(steps[each]["verdict"] != "ok" for each in ("owner", "session", "fencing")):
        raise StepError(f"`topic explain` says {steps}")
    wrong = [f"{each['step']}: {each['what']}" for each in steps.values() if each["verdict"] == "wrong"]
    return (
        f"list, stats, backlog, owner, unload ({gap_s:.1f} s without receipts), explain ({'; '.join(wrong) or 'nothing wrong'}); "
        f"{len(listed)} topics"
    )
