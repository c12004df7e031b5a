"""Who may have a bookie do what: roles come from the client's certificate, and nothing that changes a bookie is free."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from daybook_bookie.server import BookieServer
from daybook_bookie.service.roles import ROLES_OF_CALLS, Gate, Role, roles_of
from daybook_bookie.settings import Enforcement

from daybook.core.errors import Code
from daybook.runtime.ports import Address
from daybook.runtime.tls import ClientTls, server_credentials
from daybook.wire import bookie_pb2 as pb
from daybook.wire import service
from daybook.wire.channel import open_channel
from daybook.wire.service import BookieStub
from tests.unit.bookie.server_kit import RunningBookie, frame_of
from tests.unit.bookie.stream_kit import WAIT_S, GrpcPipe, Stream
from tests.unit.runtime.certificates import Authority, new_authority

StartBookie = Callable[..., RunningBookie]
CHANGING = {
    "set_read_only": (pb.SetReadOnlyRequest(read_only=True), {Role.OPERATOR}),
    "scrub": (pb.ScrubRequest(ledger_id=-1), {Role.OPERATOR}),
    "collect_garbage": (pb.CollectGarbageRequest(), {Role.OPERATOR}),
    "accept_roll_back": (pb.AcceptRollBackRequest(), {Role.OPERATOR}),
    "list_limbo": (pb.ListLimboRequest(), {Role.OPERATOR, Role.REPAIR}),
    "clear_limbo": (pb.ClearLimboRequest(ledger_id=1, nonce="00"), {Role.OPERATOR, Role.REPAIR}),
}
"""The calls that take a role, and any of which; of the others every certificate may make use."""


class Secured(NamedTuple):
    """A bookie behind mutual TLS."""

    bookie: RunningBookie
    authority: Authority
    directory: Path

    def stub(self, *roles: str, cluster: str = "test", name: str = "someone") -> BookieStub:
        """A client whose certificate has these roles."""
        uris = [f"daybook://{cluster}/role/{role}" for role in roles]
        files = self.authority.issue(self.directory, name, uris=uris)
        address = self.bookie.address.replace("127.0.0.1", "localhost")
        return BookieStub(open_channel(address, ClientTls(files).credentials))


@pytest.fixture
def start_secured(start_bookie: StartBookie, tmp_path: Path) -> Callable[..., Secured]:
    """Starts a bookie whose certificate has these URIs."""

    def start(*uris: str, **changes: Any) -> Secured:
        authority = new_authority()
        files = authority.issue(tmp_path, "server", uris=uris)
        bookie = start_bookie(
            credentials=server_credentials(files),
            tls_certificate=files.certificate,
            tls_key=files.key,
            tls_ca=files.ca,
            **changes,
        )
        bookie.create_ledger(1)
        return Secured(bookie, authority, tmp_path)

    return start


@pytest.fixture
def secured(start_secured: Callable[..., Secured]) -> Secured:
    """A bookie in a cluster whose certificates have roles."""
    return start_secured("daybook://test/role/bookie", "daybook://test/role/repair")


def is_refused(stub: BookieStub, call: str) -> bool:
    """Whether the call is refused for want of a role."""
    try:
        getattr(stub, call)(CHANGING[call][0], timeout=WAIT_S)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            return True
        raise
    return False


def test_every_call_of_the_service_has_its_roles() -> None:
    calls = {service.APPEND, service.READ} | {method.name for method in service.UNARY_METHODS}
    assert ROLES_OF_CALLS.keys() == calls
    assert all(ROLES_OF_CALLS.values())
    names = {method.name: method.name for method in service.UNARY_METHODS}
    guarded = {name for name in names if Role.CLIENT not in ROLES_OF_CALLS[name]}
    assert guarded == {"".join(map(str.capitalize, call.split("_"))) for call in CHANGING}


@pytest.mark.parametrize("call", CHANGING)
def test_what_changes_a_bookie_takes_a_role(secured: Secured, call: str) -> None:
    wanted = CHANGING[call][1]
    for role in Role:
        assert is_refused(secured.stub(role.value), call) is (role not in wanted), role
    assert is_refused(secured.stub(), call)
    assert is_refused(secured.stub("operator", "repair", cluster="other"), call), "another cluster's"
    assert secured.bookie.bookie.availability.is_writable is (call != "set_read_only")


def test_a_client_without_a_role_writes_reads_and_recovers(secured: Secured) -> None:
    stub = secured.stub()
    stream = Stream(GrpcPipe(stub))
    assert stream.attach(1) is Code.OK
    assert stream.add(frame_of(1, 0, [b"a"])) == {}
    stream.close()
    key = "nobody knows it"
    assert Code(stub.fence(pb.FenceRequest(ledger_id=1, key=key), timeout=WAIT_S).code) is Code.UNAUTHORIZED
    assert stub.get_info(pb.GetInfoRequest(), timeout=WAIT_S).bookie_id == "b0"
    assert list(stub.list_ledgers(pb.ListLedgersRequest(after_ledger=-1), timeout=WAIT_S).ledger_ids) == [1]
    assert stub.entry_intervals(pb.EntryIntervalsRequest(ledger_id=1), timeout=WAIT_S).intervals


def test_each_call_that_takes_a_role_is_counted_from_the_start(secured: Secured) -> None:
    """An alert sees a counter rise only if it was there before."""
    for method in service.UNARY_METHODS:
        for outcome in ("refused", "allowed"):
            found = secured.bookie.registry.get_sample_value(
                "daybook_bookie_calls_without_role_total", {"call": method.name, "outcome": outcome}
            )
            assert found == (None if Role.CLIENT in ROLES_OF_CALLS[method.name] else 0)


def test_who_is_refused_learns_which_role_is_missing_and_how_to_get_it(secured: Secured) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        secured.stub("repair").set_read_only(pb.SetReadOnlyRequest(read_only=True), timeout=WAIT_S)
    text = caught.value.details() or ""
    assert "takes the role operator" in text
    assert "CN=someone" in text
    assert "daybook://test/role/operator" in text
    assert secured.bookie.metric("calls_without_role_total", call="SetReadOnly", outcome="refused") == 1


def test_an_upgrade_stops_nobody_before_the_certificates_have_roles(
    start_secured: Callable[..., Secured],
) -> None:
    """The bookie's certificate is renewed while it runs, and from then on roles are enforced."""
    secured = start_secured()
    old = secured.stub()
    assert not is_refused(old, "clear_limbo")
    assert secured.bookie.metric("calls_without_role_total", call="ClearLimbo", outcome="allowed") == 1
    secured.authority.issue(secured.directory, "server", uris=["daybook://another/role/bookie"])
    assert not is_refused(old, "clear_limbo")
    secured.authority.issue(secured.directory, "server", uris=["daybook://test/role/bookie"])
    assert is_refused(old, "clear_limbo")
    assert not is_refused(secured.stub("repair"), "clear_limbo")
    (secured.directory / "server.crt").write_bytes(b"half a certifi")
    assert is_refused(old, "clear_limbo"), "a file that is being replaced opens nothing"


@pytest.mark.parametrize(("roles", "refused"), [(Enforcement.ENFORCE, True), (Enforcement.WARN, False)])
def test_the_setting_overrides_what_the_own_certificate_says(
    start_secured: Callable[..., Secured], roles: Enforcement, refused: bool
) -> None:
    uris = [] if refused else ["daybook://test/role/bookie"]
    secured = start_secured(*uris, roles=roles)
    assert is_refused(secured.stub(), "scrub") is refused


def test_who_has_not_moved_to_tls_is_not_refused_while_a_bookie_serves_both_ways(
    secured: Secured,
) -> None:
    both = BookieServer(secured.bookie.bookie, Address("127.0.0.1", 0), None, Address("127.0.0.1", 0))
    both.start()
    try:
        assert not is_refused(BookieStub(open_channel(str(both.plain_address))), "clear_limbo")
    finally:
        both.stop(0.1)


def test_a_name_that_is_no_uri_gives_no_role(secured: Secured) -> None:
    files = secured.authority.issue(secured.directory, "liar", host="daybook.test.role.operator")
    address = secured.bookie.address.replace("127.0.0.1", "localhost")
    assert is_refused(BookieStub(open_channel(address, ClientTls(files).credentials)), "scrub")
    assert roles_of(["daybook://test/role/operator/", "daybook://test/role/", "x"], "test") == {Role.CLIENT}


def test_without_client_certificates_everybody_may_and_the_log_says_so(
    bookie: RunningBookie, caplog: pytest.LogCaptureFixture
) -> None:
    assert not is_refused(bookie.stub, "set_read_only")
    gate = Gate(
        "test", Enforcement.AUTO, bookie.bookie.metrics, certificate=None, asks_for_certificates=False
    )
    caplog.clear()
    gate.tell(Address("127.0.0.1", 1))
    gate.tell(Address("::1", 1))
    assert not caplog.records
    gate.tell(Address("0.0.0.0", 3181))
    (told,) = caplog.records
    assert told.levelname == "WARNING"
    assert "whoever reaches the port" in told.getMessage()


def test_callers_are_logged_once_each_and_not_without_bound(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("daybook_bookie.service.roles._LOGGED_MAX", 2)
    stubs = [secured.stub(name=f"caller-{n}") for n in range(3)]
    for stub in stubs * 2:
        assert is_refused(stub, "scrub")
    told = [text for record in caplog.records if "a call without its role" in (text := record.getMessage())]
    assert len(told) == 2
    assert "CN=caller-0" in told[0]
    assert "CN=caller-1" in told[1]
