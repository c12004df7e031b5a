"""Policies of the Kubernetes cluster that refuse what the operator wants, as those of a real one do, and a webhook that nobody serves."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kubernetes import client as kubernetes

from tests.cluster.control_plane import ControlPlane
from tests.kubernetes.api.operator_kit import until

GROUPS: Final = {"pods": ("", "v1"), "jobs": ("batch", "v1"), "statefulsets": ("apps", "v1")}
_PROBE: Final = "configmaps"
"""Refused by the same policy, to find out when it is in force."""


@contextmanager
def refusing(
    plane: ControlPlane,
    namespace: str,
    plural: str,
    why: str,
    *,
    operation: str = "CREATE",
    unless: str = "false",
) -> Iterator[None]:
    """While entered, `operation` on these resources of the namespace is refused, `unless` the CEL expression holds."""
    name = f"{namespace}-{plural}"
    plane.apply(_policy(name, namespace, plural, why, operation=operation, unless=unless))
    with plane.api() as api:
        admission = kubernetes.AdmissionregistrationV1Api(api)
        core = kubernetes.CoreV1Api(api)
        try:
            until(lambda: _is_in_force(core, namespace, why), what="the policy is in force")
            yield
        finally:
            admission.delete_validating_admission_policy_binding(name)
            admission.delete_validating_admission_policy(name)


@contextmanager
def asking_in_vain(plane: ControlPlane, namespace: str, plural: str) -> Iterator[None]:
    """While entered, the API server has to ask a webhook that does not answer about changes of these resources of the namespace."""
    name = f"{namespace}-{plural}.example.org"
    plane.apply([_webhook(name, namespace, plural)])
    with plane.api() as api:
        admission = kubernetes.AdmissionregistrationV1Api(api)
        core = kubernetes.CoreV1Api(api)
        try:
            until(
                lambda: _is_in_force(core, namespace, "failed calling webhook"), what="the webhook is asked"
            )
            yield
        finally:
            admission.delete_validating_webhook_configuration(name)


def _is_in_force(core: Any, namespace: str, why: str) -> bool:
    try:
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "probe"}}, dry_run="All")
    except kubernetes.ApiException as error:
        return why in str(error.body)
    return False


def _policy(
    name: str, namespace: str, plural: str, why: str, *, operation: str, unless: str
) -> list[dict[str, Any]]:
    version, meta = "admissionregistration.k8s.io/v1", {"name": name}
    rules = _rules(plural, operation)
    expression = f"request.resource.resource != '{_PROBE}' && ({unless})"
    return [
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": meta,
            "spec": {
                "matchConstraints": {"resourceRules": rules},
                "validations": [{"expression": expression, "message": why}],
            },
        },
        {
            "apiVersion": version,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": meta,
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
                },
            },
        },
    ]


def _webhook(name: str, namespace: str, plural: str) -> dict[str, Any]:
    of_namespace = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": name,
                "clientConfig": {"url": "https://127.0.0.1:9/"},
                "rules": _rules(plural, "UPDATE"),
                "namespaceSelector": of_namespace,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


def _rules(plural: str, operation: str) -> list[dict[str, Any]]:
    group, of_group = GROUPS[plural]
    return [
        {"apiGroups": [group], "apiVersions": [of_group], "operations": [operation], "resources": [plural]},
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [_PROBE]},
    ]
