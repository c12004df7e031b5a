"""How brokers are asked by their pods: another broker is followed, a token has its own header, and refusals say what to do."""

from typing import Any

import pytest

from daybook.cli.kubectl.topic.pods import PodAdmin, broker_named, broker_pods, broker_problem
from daybook.client.broker_admin import AdminError
from daybook.client.broker_topics import topic
from daybook.core.topics.name import TopicName
from tests.unit.cli.kubectl.topic.kit import ApiServer, broker_pod
from tests.unit.cli.topic.snapshots import OWNER, TOPIC


def admin_of(server: ApiServer, token: str = "") -> PodAdmin:
    api: Any = server
    return PodAdmin(api, broker_pods(api, "data"), token)


def test_the_broker_that_another_one_names_is_asked_by_its_pod() -> None:
    server = ApiServer()
    broker, report = topic(admin_of(server), TOPIC)
    assert (broker.broker, report.topic) == (OWNER, str(TOPIC))
    path = "GET /daybook/v1/topics/public%2Fdefault%2Forders"
    assert server.asked == [
        f"broker-0:8080 {path}",
        f"broker-1:8080 {path} {{'authoritative': 'true'}}",
    ]


def test_a_broker_that_is_not_among_the_pods_is_named() -> None:
    server = ApiServer()
    del server.objects["Pod"][1]
    with pytest.raises(AdminError, match=r"broker data\.broker-1 at http://broker-1.*data\.broker-0"):
        topic(admin_of(server), TOPIC)


def test_brokers_with_ids_of_their_own_are_found_by_the_name_of_their_pod() -> None:
    server = ApiServer()
    elsewhere = {
        "broker": "my-broker",
        "adminUrl": "http://broker-1.broker-pods.data.svc:8080",
        "authoritative": False,
    }
    server.answers["broker-0 GET /daybook/v1/topics/public/default/orders"] = (409, elsewhere)
    assert topic(admin_of(server), TOPIC)[0].broker == OWNER
    assert server.asked[-1].endswith("{'authoritative': 'false'}")


def test_a_topic_that_moves_for_ever_is_given_up() -> None:
    server = ApiServer()
    moving = {"broker": "data.broker-0", "adminUrl": "http://x:8080", "authoritative": False}
    server.answers["GET /daybook/v1/topics/public/default/orders"] = (409, moving)
    with pytest.raises(AdminError, match="moved from broker to broker 20 times"):
        topic(admin_of(server), TOPIC)


def test_a_token_has_a_header_of_its_own() -> None:
    server = ApiServer()
    admin_of(server, "a.b.c").ask("GET", TOPIC, "policy")
    admin_of(server).ask("GET", TOPIC, "policy")
    assert server.headers == [{"X-Daybook-Token": "a.b.c"}, {}]


def test_a_name_of_any_characters_is_one_part_of_the_path() -> None:
    server = ApiServer()
    with pytest.raises(AdminError):
        admin_of(server).ask(
            "PUT", TopicName("public", "default", "a b%2F?c&d#é"), "unload?destinationBroker=x"
        )
    assert server.asked == [
        "broker-0:8080 PUT /admin/v2/persistent/public/default/a%20b%252F%3Fc%26d%23%C3%A9/unload {'destinationBroker': 'x'}"
    ]


@pytest.mark.parametrize(("method", "verb"), [("GET", "get"), ("PUT", "update")])
def test_a_refusal_names_the_right_that_is_missing(method: str, verb: str) -> None:
    server = ApiServer()
    message = 'pods "broker-0:8080" is forbidden: User "ann" cannot do that'
    server.answers[f"broker-0 {method} /x"] = (
        403,
        {"kind": "Status", "message": message, "reason": "Forbidden"},
    )
    with pytest.raises(AdminError) as raised:
        admin_of(server).ask_any(method, "/x")
    said = str(raised.value)
    assert said.startswith(message)
    assert f"the right to {verb} pods/proxy in namespace data" in said
    assert "role …-edit has it" in said


def test_a_pod_that_the_api_server_does_not_reach_is_passed_over() -> None:
    server = ApiServer()
    gone = (503, {"kind": "Status", "message": "error trying to reach service: connection refused"})
    server.answers["broker-0 GET /x"] = gone
    server.answers["broker-1 GET /x"] = (200, {"is": "there"})
    assert admin_of(server).ask_any("GET", "/x") == {"is": "there"}
    server.answers["broker-1 GET /x"] = gone
    with pytest.raises(AdminError, match=r"does not reach pod data/broker-1: error trying to reach service"):
        admin_of(server).ask_any("GET", "/x")


def test_a_change_that_a_pod_may_have_carried_out_is_sent_to_no_other_pod() -> None:
    server = ApiServer()
    server.answers["broker-1 PUT /x"] = (204, None)
    for status, why in ((503, "dial tcp 10.0.0.1:8080: connect: connection refused"), (404, "not found")):
        server.answers["broker-0 PUT /x"] = (status, {"kind": "Status", "message": why})
        assert admin_of(server).ask_any("PUT", "/x") is None
    server.answers["broker-0 PUT /x"] = (
        503,
        {"kind": "Status", "message": "error trying to reach service: EOF"},
    )
    server.asked.clear()
    with pytest.raises(AdminError, match=r"EOF; .* may have been carried out") as raised:
        admin_of(server).ask_any("PUT", "/x")
    assert (raised.value.status, raised.value.is_outcome_unknown) == (0, True)
    assert server.asked == ["broker-0:8080 PUT /x"]


def test_what_a_broker_says_is_the_reason_and_without_a_token_the_option_is_named() -> None:
    server = ApiServer()
    server.answers["broker-0 GET /x"] = (401, {"reason": "this broker asks who you are"})
    with pytest.raises(
        AdminError, match="asks who you are; give the file with the broker's token: --token-file FILE"
    ):
        admin_of(server).ask_any("GET", "/x")
    server.answers["broker-0 GET /x"] = (403, {"reason": "role 'ann' may not see the topics of the cluster"})
    with pytest.raises(AdminError, match=r"^role 'ann' may not see") as raised:
        admin_of(server).ask_any("GET", "/x")
    assert raised.value.status == 403


def test_pods_that_are_ready_are_asked_first_and_without_pods_the_namespace_is_named() -> None:
    server = ApiServer()
    server.objects["Pod"][0] = broker_pod("broker-0", ready=False)
    pods = broker_pods(server, "data")  # type: ignore[arg-type] # a recording
    assert [broker_problem(each) for each in pods] == ["", "its pod is not ready: AsItShouldBe"]
    assert broker_named(pods, "broker-0") == broker_named(pods, "data.broker-0") == "data.broker-0"
    with pytest.raises(AdminError, match="no broker's pod 'b' here: use one of broker-1, broker-0"):
        broker_named(pods, "b")
    with pytest.raises(AdminError, match=r"no pod of a broker in namespace other.*-n NAMESPACE"):
        broker_pods(server, "other")  # type: ignore[arg-type] # a recording
