"""What a registration tells clients: the address to go to, with TLS and without."""

from daybook.core.placement.policy import BookieInfo


def test_a_client_with_tls_goes_to_the_address_that_has_it() -> None:
    plain, moving = BookieInfo("b1", "host:1"), BookieInfo("b2", "host:1", tls_address="host:2")
    assert [plain.address_for(secure=secure) for secure in (False, True)] == ["host:1", "host:1"]
    assert [moving.address_for(secure=secure) for secure in (False, True)] == ["host:1", "host:2"]
