"""Which error an answer of the API server is: what to do next depends on it."""

import json

import pytest
from daybook_operator.kube.api import ForbiddenError, Kube, KubeError, UnavailableError, WebhookError
from daybook_operator.metrics import OperatorMetrics
from kubernetes.client import Configuration

SERVICE = {"kind": "Service", "metadata": {"namespace": "data", "name": "bk"}}


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (
            500,
            'Internal error occurred: failed calling webhook "a": failed to call webhook: Post "https://a": connection refused',
            WebhookError,
        ),
        (500, "etcdserver: request timed out", UnavailableError),
        (403, 'admission webhook "a" denied the request: failed calling webhook is its text', ForbiddenError),
    ],
)
async def test_a_webhook_that_does_not_answer_is_no_api_server_that_does_not(
    status: int, said: str, expected: type[KubeError], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.dumps({"kind": "Status", "message": said}).encode()
    monkeypatch.setattr(Kube, "_request", lambda *_: (status, answer))
    kube = Kube(Configuration(), threads=1, timeout_s=1, metrics=OperatorMetrics())
    try:
        with pytest.raises(KubeError) as caught:
            await kube.apply(SERVICE)
    finally:
        kube.close()
    assert type(caught.value) is expected
    assert said in str(caught.value)
