"""The commands, on an API server that is a recording."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from daybook.cli.kubectl import app
from daybook.cli.kubectl.api import Api
from daybook.client.topic_reports import Serving
from tests.unit.cli.kubectl.objects import condition
from tests.unit.cli.kubectl.topic.kit import ApiServer, broker_pod, topic_resource
from tests.unit.cli.topic.snapshots import OWNER, TOPIC, broker, open_ledger, report, subscription


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """The API server that commands connect to; the context's namespace is `data`."""
    found = ApiServer()
    monkeypatch.setattr(Api, "connect", lambda *_: (found, "data"))
    return found


def run(*words: object, env: dict[str, str] | None = None) -> Result:
    settings = {"COLUMNS": "220", "TERM": "dumb", "NO_COLOR": "1", **(env or {})}
    return CliRunner().invoke(app, ["topic", *map(str, words)], env=settings)


def shown(done: Result) -> list[list[str]]:
    """The cells of a table's rows."""
    assert done.exit_code == 0, done.output
    return [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line
    ]


def test_the_list_has_what_every_broker_serves_and_what_resources_name(server: ApiServer) -> None:
    server.objects["Topic"] = [topic_resource(), topic_resource("idle", tenant="shop")]
    rows = {row[0]: row for row in shown(run("list"))}
    assert rows[str(TOPIC)] == [str(TOPIC), OWNER, "served", "0", "12", "0", "0", "0", "data/orders"]
    assert rows["persistent://shop/default/idle"][1:4] == ["", "idle", ""]
    only = json.loads(run("list", "shop/default", "--json").stdout)
    assert [each["topic"] for each in only] == ["persistent://shop/default/idle"]


def test_partitions_belong_to_the_resource_of_their_topic(server: ApiServer) -> None:
    server.objects["Topic"] = [topic_resource("orders", condition("Ready", "False", "ResourceConflict"))]
    server.orders = report(topic=f"{TOPIC}-partition-3")
    (only,) = json.loads(run("list", "--json").stdout)
    assert (only["topic"], only["resource"]) == (f"{TOPIC}-partition-3", "data/orders")
    assert only["problems"] == ["Topic data/orders: Ready is False (ResourceConflict)"]


def test_a_list_that_lacks_a_broker_says_so_and_fails(server: ApiServer) -> None:
    server.answers["broker-0 GET /daybook/v1/topics"] = (403, {"reason": "role 'ann' may not see the topics"})
    done = run("list")
    assert done.exit_code == 1
    assert str(TOPIC) in done.stdout
    assert "without the topics of broker data.broker-0: role 'ann' may not" in done.stderr


def test_stats_and_backlog_are_what_the_owner_reports(server: ApiServer) -> None:
    waiting = subscription("audit log", backlog_entries=1_200, oldest_age_s=93_784, kind="Exclusive")
    server.orders = report(subscription(), waiting, subscription("b", is_blocked=True), message_rate_in=12.5)
    (row,) = shown(run("stats", "orders"))
    assert row[:5] == [str(TOPIC), OWNER, "served LedgerOpened", "0", "12.5"]
    assert row[-1] == "data.bk-0, data.bk-1, data.bk-2"
    rows = shown(run("backlog", "orders"))
    assert rows[0][:5] == ["orders", "audit log", "Exclusive", "1,200", "1 d 2 h"]
    assert {row[1]: row[7] for row in rows} == {"audit log": "12", "billing": "12", "b": "12 blocked"}
    record = json.loads(run("backlog", "orders", "--json").stdout)[str(TOPIC)]
    assert record["broker"]["broker"] == OWNER
    assert record["subscriptions"][1]["backlogEntries"] == 1_200


def test_the_owner_is_shown_with_its_pod_and_nobody_takes_the_topic_for_that(server: ApiServer) -> None:
    (row,) = shown(run("owner", "orders"))
    assert row == [str(TOPIC), "public/default/0xb0000000_0xb8000000", OWNER, "broker-1", "worker-b", "yes"]
    server.answers["GET /admin/v2/namespaces/public/default/owners"] = (200, {})
    assert json.loads(run("owner", "orders", "--json").stdout)[0]["owner"] is None
    assert not any("/daybook/v1/" in each for each in server.asked)


def test_unload_takes_a_pod_for_the_next_owner(server: ApiServer) -> None:
    path = "/admin/v2/persistent/public/default/orders/unload"
    server.answers[f"PUT {path}"] = (204, None)
    assert run("unload", "orders", "--to", "broker-0").output == f"topic {TOPIC} is unloaded to broker-0\n"
    assert server.asked[-1] == f"broker-0:8080 PUT {path} {{'destinationBroker': 'data.broker-0'}}"
    assert run("unload", "orders").exit_code == 0
    assert server.asked[-1] == f"broker-0:8080 PUT {path}"
    assert "use one of broker-0, broker-1" in run("unload", "orders", "--to", "nobody").output


def test_each_partition_is_asked_for(server: ApiServer) -> None:
    path = "/admin/v2/persistent/public/default/orders"
    server.answers[f"GET {path}/partitions"] = (200, {"partitions": 2})
    for n in range(2):
        server.answers[f"PUT {path}-partition-{n}/unload"] = (204, None)
    assert run("unload", "orders").exit_code == 0
    assert [each.split("/")[-2] for each in server.asked[-2:]] == ["orders-partition-0", "orders-partition-1"]


def test_of_a_topic_that_is_being_deleted_the_unfinished_deletion_is_the_answer(server: ApiServer) -> None:
    path = "/admin/v2/persistent/public/default/orders"
    server.answers[f"GET {path}/partitions"] = (200, {"partitions": 2, "deleted": True})
    done = run("explain", "orders")
    assert done.exit_code == 1
    assert "its deletion is not finished" in done.output.replace("\n", " ")


def test_explain_is_fine_where_everything_is(server: ApiServer) -> None:
    done = run("explain", "orders")
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["ok"] * 11
    assert "3 of 3 registered bookies take writes" in done.stdout


def test_explain_joins_resources_pods_pools_and_what_brokers_say(server: ApiServer) -> None:
    server.objects["Pod"][1] = broker_pod("broker-1", ready=False)
    server.objects["Topic"] = [
        topic_resource("orders", condition("Ready", "False", "NotManaged", "a client made it")),
        topic_resource("other", topicName="others"),
    ]
    server.objects["BookiePool"][0]["status"]["bookies"][0]["state"] = "ReadOnly"
    server.owner = broker(is_certain=False)
    server.orders = report(serving=Serving.SERVED, open_ledger=open_ledger(error="it is fenced"))
    done = run("explain", "orders", "--json")
    assert done.exit_code == 1
    (record,) = json.loads(done.stdout)
    wrong = {step["step"]: step for step in record["steps"] if step["verdict"] == "wrong"}
    assert list(wrong) == ["resource", "session", "fencing", "ensemble"]
    assert (
        wrong["resource"]["evidence"][0] == "Topic data/orders: Ready is False (NotManaged): a client made it"
    )
    assert wrong["session"]["nextCommand"] == "kubectl logs -n data broker-1 --tail 50"
    assert wrong["fencing"]["nextCommand"] == f"kubectl daybook topic unload -n data {TOPIC}"
    assert "bookie data.bk-0, which takes no writes" in wrong["ensemble"]["what"]


@pytest.mark.parametrize(
    ("said", "exit_code"),
    [
        (condition("JobsHealthy", "False", "JobFailed", "no bucket"), 1),
        (condition("JobsHealthy", "True", "NothingFailed"), 0),
        (condition("PoolDraining", "True", "DrainHeldUp", "it is held up"), 1),
        (condition("PoolDraining", "True", "BookieLeaves", "clients continue"), 0),
        (condition("PoolDraining", "False", "NotDraining"), 0),
    ],
)
def test_a_job_that_failed_and_a_drain_that_is_held_up_are_wrong(
    server: ApiServer, said: dict[str, str], exit_code: int
) -> None:
    server.objects["Topic"] = [topic_resource("orders", condition("Ready", "True"), said, managed=False)]
    done = run("explain", "orders")
    assert done.exit_code == exit_code, done.output
    assert (f"{said['type']} is" in done.stdout) == bool(exit_code)


def test_what_the_person_may_not_read_is_unknown_and_not_fine(server: ApiServer) -> None:
    server.refused = {"Topic", "BookiePool"}
    (record,) = json.loads(run("explain", "orders", "--json").stdout)
    unknown = {step["step"]: step["what"] for step in record["steps"] if step["verdict"] == "unknown"}
    assert unknown == {"resource": "Topic is forbidden", "ensemble": "BookiePool is forbidden"}


def test_someone_who_may_read_one_namespace_sees_what_is_there(server: ApiServer) -> None:
    server.is_narrow = True
    server.objects["Topic"] = [topic_resource("orders", condition("Ready", "False", "NotManaged"))]
    assert (
        "wrong   resource        Topic data/orders is not as it should be" in run("explain", "orders").stdout
    )
    manager = {"namespace": "elsewhere", "name": "orders", "uid": "u"}
    server.answers["GET /admin/v2/persistent/public/default/orders/policy"] = (200, {"managedBy": manager})
    done = run("explain", "orders")
    assert (
        "unknown resource        Topic elsewhere/orders manages it, and cannot be read: Topic is forbidden"
        in done.stdout
    )


def test_pools_without_the_bookies_of_the_topic_say_nothing_about_it(server: ApiServer) -> None:
    server.orders = report(open_ledger=open_ledger(ensemble=("far.bk-0",)))
    (record,) = json.loads(run("explain", "orders", "--json").stdout)
    (unknown,) = [step for step in record["steps"] if step["verdict"] == "unknown"]
    assert (unknown["step"], "no BookiePool has far.bk-0" in unknown["what"]) == ("ensemble", True)


def test_why_no_broker_serves_the_topic_is_evidence(server: ApiServer) -> None:
    path = "/daybook/v1/topics/public/default/orders"
    server.answers[f"GET {path}"] = (503, {"reason": "ledger 7 cannot be recovered: 2 bookies do not answer"})
    server.answers["GET /admin/v2/persistent/public/default/orders/policy/applied"] = (
        500,
        {"reason": "no sense"},
    )
    done = run("explain", "orders")
    assert done.exit_code == 1
    assert "wrong   policy          what is set for the topic cannot hold" in done.stdout
    assert "ledger 7 cannot be recovered" in done.stdout
    assert "unknown permits" in done.stdout


def test_the_token_is_that_of_the_file_and_a_missing_topic_is_an_error(
    server: ApiServer, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("a.b.c\n")
    assert run("owner", "orders", "--token-file", token).exit_code == 0
    assert run("owner", "orders", env={"DAYBOOK_TOKEN_FILE": str(token)}).exit_code == 0
    assert {each["X-Daybook-Token"] for each in server.headers} == {"a.b.c"}
    assert "nowhere" in run("owner", "orders", "--token-file", tmp_path / "nowhere").stderr
    done = run("explain", "missing")
    assert done.exit_code == 1
    assert "does not exist" in done.stderr
