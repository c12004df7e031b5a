"""The number of ZooKeeper's servers: however it changes, two majorities never decide independently."""

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daybook.runtime.zookeeper_ensemble import (
    RECORD,
    Answer,
    OtherEnsembleError,
    ServerSettings,
    WrongSettingsError,
    ask_server,
    has_data,
    missing_answers,
    record,
    recorded,
    servers_to_ask,
    wait_for_others,
)
from daybook.runtime.zookeeper_server import Standing, answer

SERVERS_MAX = 5


def server(size: int, ordinal: int, data_dir: Path = Path("/data")) -> ServerSettings:
    return ServerSettings(tuple(f"zk-{n}" for n in range(size)), ordinal, data_dir)


# The record.


def test_the_number_of_servers_is_kept_beside_the_data(tmp_path: Path) -> None:
    three = server(3, 0, tmp_path)
    assert recorded(three) is None, "an empty disk"
    record(three)
    assert recorded(three) == recorded(server(5, 0, tmp_path)) == 3
    (tmp_path / RECORD).write_text("three")
    with pytest.raises(WrongSettingsError, match=RECORD):
        recorded(three)


def test_data_without_a_record_belongs_to_the_configured_number(tmp_path: Path) -> None:
    (tmp_path / "version-2").mkdir()
    assert recorded(server(3, 1, tmp_path)) == 3


# Which server may start.


def test_a_restarted_server_asks_no_other() -> None:
    assert servers_to_ask(server(3, 1), 3) == ()
    assert servers_to_ask(server(1, 0), None) == ()


@pytest.mark.parametrize(("before", "size"), [(3, 5), (1, 3), (5, 4), (3, 1)])
def test_a_server_refuses_every_ensemble_but_its_own_and_one_server_more(before: int, size: int) -> None:
    with pytest.raises(
        OtherEnsembleError, match=f"belongs to an ensemble of {before} servers, and {size} are"
    ):
        servers_to_ask(server(size, 0), before)


def test_the_new_server_starts_first_once_all_others_serve() -> None:
    mine = server(4, 3)
    assert servers_to_ask(mine, None) == (0, 1, 2)
    serves = Answer(3, serves=True, has_data=True)
    assert missing_answers(mine, None, {0: serves, 1: serves, 2: serves}) == ""
    does_not = "zk-2 has data and does not serve"
    assert missing_answers(mine, None, {0: serves, 1: serves, 2: Answer(3, has_data=True)}) == does_not
    assert missing_answers(mine, None, {0: serves, 1: serves, 2: Answer(3)}) == does_not, "an older release"
    assert missing_answers(mine, None, {0: serves, 1: None, 2: serves}) == "zk-1 does not answer"
    assert (
        missing_answers(mine, None, {0: serves, 1: Answer(2, serves=True), 2: serves}) == "zk-1 is one of 2"
    )


def test_the_others_follow_once_the_new_one_has_started() -> None:
    mine = server(4, 2)
    assert servers_to_ask(mine, 3) == (0, 1, 3)
    assert missing_answers(mine, 3, {0: Answer(3), 1: Answer(4), 3: Answer(4)}) == ""
    assert (
        missing_answers(mine, 3, {0: Answer(3), 1: Answer(3), 3: Answer(4, waits=True)})
        == "zk-3 has not started"
    )
    assert (
        missing_answers(mine, 3, {0: Answer(2), 1: None, 3: Answer(4)})
        == "zk-0 is one of 2; zk-1 does not answer"
    )


def test_an_empty_disk_waits_for_all_others() -> None:
    """Beside an unavailable server it could outvote what only that server knows."""
    mine = server(3, 2)
    assert missing_answers(mine, None, {0: Answer(3), 1: Answer(3, waits=True)}) == ""
    assert "zk-1 does not answer" in missing_answers(mine, None, {0: Answer(3), 1: None})
    assert "zk-0 is one of 1" in missing_answers(mine, None, {0: Answer(1), 1: Answer(3)}), "alone until now"


def test_an_empty_disk_waits_until_the_servers_with_data_serve() -> None:
    """Two empty servers of three are a majority, and the third, which has the data, may still read its snapshot."""
    empty, read = Answer(3, waits=True), Answer(3, has_data=True)
    for mine, other in ((0, 1), (1, 0)):
        missing = missing_answers(server(3, mine), None, {other: empty, 2: read})
        assert missing == "zk-2 has data and does not serve"
    serves = Answer(3, serves=True, has_data=True)
    assert missing_answers(server(3, 0), None, {1: read, 2: serves}) == "zk-1 has data and does not serve"
    assert missing_answers(server(3, 0), None, {1: serves, 2: serves}) == ""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"acceptedEpoch": "1", "currentEpoch": "0", "snapshot.0": ""}, False),
        ({"currentEpoch": "1", "snapshot.0": ""}, True),
        ({"snapshot.0": "", "log.1": ""}, True),
        ({"currentEpoch": "0", "snapshot.2a": ""}, True),
        ({"currentEpoch": "one"}, True),
    ],
    ids=["empty", "never in a quorum", "in a quorum", "alone until now", "restored", "unreadable"],
)
def test_a_server_has_data_once_it_took_part_in_a_decision(
    tmp_path: Path, files: dict[str, str], expected: bool
) -> None:
    for name, content in files.items():
        (tmp_path / "version-2").mkdir(exist_ok=True)
        (tmp_path / "version-2" / name).write_text(content)
    assert has_data(server(3, 0, tmp_path)) is expected


@pytest.mark.parametrize("told", [True, False, None])
def test_a_server_reports_whether_it_has_data(tmp_path: Path, told: bool | None) -> None:
    """A server of an older release does not report it."""
    found = {"servers": 3, "waits": False, "serves": True} | ({} if told is None else {"has_data": told})

    class Handler(BaseHTTPRequestHandler):
        """Report it."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - http.server's name
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as one:
        thread = threading.Thread(target=one.handle_request)
        thread.start()
        assert ask_server("127.0.0.1", one.server_port) == Answer(3, serves=True, has_data=bool(told))
        thread.join()


def test_it_waits_until_they_answer_or_a_person_has_it_adopted(tmp_path: Path) -> None:
    mine = server(3, 2, tmp_path)
    said: list[str] = []
    answers = iter([None, Answer(3), Answer(3), Answer(3)])

    def ask(_host: str, _port: int) -> Answer | None:
        return next(answers)

    class Waiting(threading.Event):
        """Asks again at once."""

        def wait(self, timeout: float | None = None) -> bool:
            return self.is_set()

    assert wait_for_others(mine, None, ask, Waiting(), said.append)
    assert said == ["this server has an empty disk and waits for others: zk-0 does not answer"]

    def adopted(_host: str, _port: int) -> Answer | None:
        record(mine)
        return None

    assert wait_for_others(mine, None, adopted, Waiting(), said.append)
    stopped = Waiting()
    stopped.set()
    assert not wait_for_others(server(3, 2, tmp_path / "new"), None, ask, stopped, said.append)


def test_a_server_that_waits_lives_is_not_ready_and_tells_what_it_knows() -> None:
    answers = {"ruok": "imok", "srvr": "Mode: follower\n"}
    standing = Standing(3, waits="it waits for zk-1")
    assert answer("/livez", standing, answers.__getitem__) == (200, "it waits for zk-1\n")
    assert answer("/readyz", standing, answers.__getitem__)[0] == 503
    assert answer("/ensemble", standing, answers.__getitem__) == (200, Answer(3, waits=True).to_json())
    standing.waits = ""
    assert answer("/livez", standing, answers.__getitem__) == (200, "imok\n")
    assert answer("/ensemble", standing, answers.__getitem__) == (200, Answer(3, serves=True).to_json())
    answers["srvr"] = "not serving"
    assert answer("/ensemble", standing, answers.__getitem__) == (200, Answer(3).to_json())
    standing.has_data = lambda: True
    assert answer("/ensemble", standing, answers.__getitem__) == (200, Answer(3, has_data=True).to_json())


def test_a_server_that_knows_one_more_than_the_others_holds_no_roll_up() -> None:
    """It serves once a majority has the number, and the StatefulSet continues with the next server once it is ready."""
    answers = {"srvr": "not serving"}
    found: list[Answer | None] = [Answer(3), None, Answer(4)]
    standing = Standing(4)
    assert answer("/readyz", standing, answers.__getitem__, lambda: found)[0] == 200
    found[0] = Answer(4)
    assert answer("/readyz", standing, answers.__getitem__, lambda: found)[0] == 503, "a lost quorum"


def test_a_second_pod_of_a_server_alone_is_refused() -> None:
    """`kubectl scale` started further servers, each with its own metadata, behind the same Service."""
    alone = {"ZOOKEEPER_SERVERS": "zk-0.zk-servers.data.svc"}
    assert ServerSettings.from_variables({**alone, "HOSTNAME": "zk-0"}).size == 1
    assert ServerSettings.from_variables({**alone, "HOSTNAME": "laptop-7"}).size == 1
    with pytest.raises(WrongSettingsError, match="set the number of pods to 1 again"):
        ServerSettings.from_variables({**alone, "HOSTNAME": "zk-1"})


# All of them together.


@dataclass
class Ensemble:
    """Servers as processes on disks. `commit` is what a majority decided last; who is in `commits` with it has it.

    A server counts the votes of all others that it knows, however many those know.
    """

    configured: int
    records: dict[int, int] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    """The report of a process that has not started its server yet."""
    serving: set[int] = field(default_factory=set)
    commits: dict[int, int] = field(default_factory=dict)
    commit: int = 0
    has_lost_disks: bool = False

    def start(self, ordinal: int) -> None:
        """Start a pod with the present configuration; a server that may not start waits or ends."""
        self.stop(ordinal)
        if ordinal >= self.configured:
            return
        mine, before = server(self.configured, ordinal), self.records.get(ordinal)
        try:
            ordinals = servers_to_ask(mine, before)
        except OtherEnsembleError:
            return
        if missing_answers(mine, before, {o: self.says(o) for o in ordinals}):
            self.waiting[ordinal] = before or self.configured
            return
        self.records[ordinal] = self.running[ordinal] = self.configured

    def says(self, ordinal: int) -> Answer | None:
        """What the server answers."""
        knows = ordinal in self.commits
        if ordinal in self.running:
            return Answer(self.running[ordinal], serves=ordinal in self.serving, has_data=knows)
        if ordinal in self.waiting:
            return Answer(self.waiting[ordinal], waits=True, has_data=knows)
        return None

    def stop(self, ordinal: int) -> None:
        """Its pod is gone, and with it perhaps the leader."""
        if self.running.pop(ordinal, None) is not None:
            self.serving.clear()
        self.waiting.pop(ordinal, None)

    def lose_disk(self, ordinal: int) -> None:
        """What it knew is gone; what all others know less of is then lost, whatever they do."""
        self.stop(ordinal)
        self.records.pop(ordinal, None)
        self.commits.pop(ordinal, None)
        self.has_lost_disks = True
        self.commit = max(self.commits.values(), default=0)

    def fewest(self) -> int:
        """The servers to configure after the loss of disks: the largest known number, and one server to ask."""
        return max([2, *self.records.values()])

    def voters(self, size: int) -> set[int]:
        """The servers that can vote with `size` known servers."""
        return {ordinal for ordinal in self.running if ordinal < size}

    def check_majorities(self) -> None:
        """No two majorities without a server in common, by whatever numbers running servers count."""
        for one in set(self.running.values()):
            for other in set(self.running.values()):
                apart = one // 2 + other // 2 + 2
                assert len(self.voters(max(one, other))) < apart, f"of {one} and of {other}: {self}"

    def elect(self) -> None:
        """The majority has a leader, which sends the decisions to all servers that it knows."""
        for size in set(self.running.values()):
            if len(self.voters(size)) > size / 2:
                self.serving = self.voters(size)
                newest = max(self.commits.get(each, 0) for each in self.serving)
                assert newest == self.commit, f"nobody of {self.serving} knows {self.commit}: {self}"
                self.commits |= dict.fromkeys(self.serving, self.commit)

    def decide(self) -> None:
        """Each possible majority decides, and of each only its least informed servers."""
        for size in sorted(set(self.running.values())):
            by_age = sorted(self.voters(size), key=lambda each: self.commits.get(each, 0))
            if len(by_age) <= size / 2:
                continue
            majority = by_age[: size // 2 + 1]
            assert self.commit in {self.commits.get(each, 0) for each in majority}, (
                f"{majority} of {size} decide, and none of them knows {self.commit}: {self}"
            )
            self.commit += 1
            self.commits |= dict.fromkeys(majority, self.commit)


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("configure"), st.integers(1, SERVERS_MAX)),
        st.tuples(
            st.sampled_from(["start", "start", "stop", "decide", "elect", "lose"]),
            st.integers(0, SERVERS_MAX - 1),
        ),
        st.tuples(st.just("roll"), st.just(0)),
    ),
    max_size=60,
)


GROWN_IN_HASTE = [("configure", 4), ("decide", 0), ("roll", 0), ("configure", 5), ("roll", 0), ("roll", 0)]
"""No leader was elected between the two steps, and two of three servers know what no other received."""

TWO_OF_THREE_ARE_LOST = [
    *(("decide", 0), ("elect", 0), ("lose", 0), ("lose", 1)),
    *(("start", 0), ("start", 1), ("start", 0)),
]
"""Two empty servers are a majority beside one that has the data."""


@settings(max_examples=300, deadline=None)
@example(3, GROWN_IN_HASTE)
@example(3, TWO_OF_THREE_ARE_LOST)
@given(st.sampled_from([1, 3, 4]), EVENTS)
def test_two_majorities_never_decide_apart(first: int, events: list[tuple[str, int]]) -> None:
    ensemble = Ensemble(first)
    for _ in range(2):
        for ordinal in range(first):
            ensemble.start(ordinal)
    assert len(ensemble.running) == first, "an ensemble begins"
    for what, number in [*events, ("decide", 0)]:
        if what == "configure":
            # Empty servers ask only those that are configured; it is the chart that refuses to go from five to two.
            ensemble.configured = max(number, ensemble.fewest()) if ensemble.has_lost_disks else number
        elif what == "start":
            ensemble.start(number)
        elif what == "stop":
            ensemble.stop(number)
        elif what == "lose" and ensemble.configured >= ensemble.fewest():
            ensemble.lose_disk(number)
        elif what == "roll":
            for ordinal in reversed(range(ensemble.configured)):
                ensemble.start(ordinal)
        ensemble.check_majorities()
        if what == "decide":
            ensemble.decide()
        elif what == "elect":
            ensemble.elect()


def test_an_ensemble_of_three_grows_to_five_one_after_the_other() -> None:
    ensemble = Ensemble(3)
    for _ in range(2):
        for ordinal in range(3):
            ensemble.start(ordinal)
    for size in (4, 5):
        ensemble.decide()
        ensemble.elect()
        ensemble.configured = size
        for ordinal in reversed(range(size)):
            ensemble.start(ordinal)
            assert ordinal in ensemble.running
        assert ensemble.running == dict.fromkeys(range(size), size)
