"""The cases of every CEL rule in crds/. `test_crd_rules.py` fails for a rule that has none here."""

from collections.abc import Iterator
from typing import Any, Final

from tests.kubernetes.api.crd_rules import Case, merged
from tests.kubernetes.api.rest import Object


def _spec(**fields: Any) -> Object:
    return {"spec": fields}


def _immutable(
    kind: str,
    place: str,
    begins: str,
    field: tuple[str, ...],
    values: tuple[Any, Any],
    *,
    neighbour: Object,
    beside: Object | None = None,
) -> Iterator[Case]:
    """The three ways to break an immutable field: changed, added, taken out. `beside` is there all the time."""

    def at(value: Any) -> Object:
        for name in reversed(field):
            value = {name: value}
        return _spec(**value)

    one, other = map(at, values)
    for what, before, after in (
        ("changed", one, other),
        ("added", at(None), one),
        ("taken out", one, at(None)),
    ):
        named = f"{'.'.join(field)} {what}"
        yield Case(kind, place, begins, named, after, neighbour, before=merged(beside or {}, before))


def _pool_cases() -> Iterator[Case]:
    kind = "BookiePool"
    yield Case(
        kind,
        "",
        "metadata.name",
        "too long",
        {"metadata": {"name": "b" * 41}},
        {"metadata": {"name": "b" * 40}},
    )
    yield Case(
        kind, "", "metadata.name", "digit first", {"metadata": {"name": "1bk"}}, {"metadata": {"name": "bk1"}}
    )
    yield Case(
        kind, "", "metadata.name", "with a dot", {"metadata": {"name": "b.k"}}, {"metadata": {"name": "b-k"}}
    )
    yield Case(
        kind,
        "spec",
        "rollout.maxUnavailable",
        "two at once",
        _spec(rollout={"maxUnavailable": 2}),
        _spec(rollout={"maxUnavailable": 2, "gate": "Ready"}),
    )
    for number in (0, -1):
        yield Case(
            kind,
            "spec.replicas",
            "replicas must",
            f"{number} replicas",
            _spec(replicas=number),
            _spec(replicas=1, hibernate=True),
        )


def _pool_metadata_cases() -> Iterator[Case]:
    kind = "BookiePool"
    moved = _spec(metadata={"zookeeper": "zk-1.zk:2181,zk-2.zk:2181"})
    beside = _spec(metadata={"zookeeper": "zk-0.zk:2181"})
    yield from _immutable(
        kind,
        "spec",
        "metadata.cluster is immutable",
        ("metadata", "cluster"),
        ("east", "west"),
        neighbour=moved,
        beside=beside,
    )
    yield Case(
        kind,
        "spec",
        "metadata.cluster is immutable",
        "metadata taken out",
        _spec(metadata=None),
        _spec(replicas=4),
        before=_spec(metadata={"zookeeper": "zk:2181", "cluster": "east"}),
    )
    place = "spec.metadata.zookeeper"
    for wrong, right in (
        ("zk", "zk:2181"),
        ("zk:2181, zk2:2181", "zk:2181,zk2:2181"),
        ("zk:2181/x", "10.0.0.1:2181"),
    ):
        yield Case(
            kind,
            place,
            "metadata.zookeeper must",
            wrong,
            _spec(metadata={"zookeeper": wrong}),
            _spec(metadata={"zookeeper": right}),
        )
    yield Case(
        kind,
        "spec.metadata.cluster",
        "metadata.cluster must",
        "a slash in the cluster",
        _spec(metadata={"cluster": "a/b"}),
        _spec(metadata={"cluster": "a-b"}),
    )


def _pool_storage_cases() -> Iterator[Case]:
    kind = "BookiePool"
    for volume in ("journal", "store"):
        place = f"spec.storage.{volume}"
        for before, smaller, larger in (
            ("20Gi", "10Gi", "20480Mi"),
            ("1Ti", "1023Gi", "2Ti"),
            ("1G", "999M", "1Gi"),
        ):
            yield Case(
                kind,
                place,
                f"size of the {volume} cannot shrink",
                f"{before} to {smaller}",
                _spec(storage={volume: {"size": smaller}}),
                _spec(storage={volume: {"size": larger}}),
                before=_spec(storage={volume: {"size": before}}),
            )
        yield from _immutable(
            kind,
            place,
            f"storageClass of the {volume} is immutable",
            ("storage", volume, "storageClass"),
            ("fast", "slow"),
            neighbour=_spec(storage={volume: {"size": "11Gi"}}),
        )
        for wrong in ("ten", "0", "-1Gi"):
            yield Case(
                kind,
                f"{place}.size",
                f"size of the {volume} must",
                f"size {wrong}",
                _spec(storage={volume: {"size": wrong}}),
                _spec(storage={volume: {"size": "1Gi"}}),
            )


def _pool_detail_cases() -> Iterator[Case]:
    kind = "BookiePool"
    for wrong, right in (("-1", "0"), ("much", "128Mi")):
        yield Case(
            kind,
            "spec.recovery.bandwidthPerJob",
            "recovery.bandwidthPerJob must",
            f"bandwidth {wrong}",
            _spec(recovery={"bandwidthPerJob": wrong}),
            _spec(recovery={"bandwidthPerJob": right}),
        )
    for name, percents in (
        ("low water above read-only", {"lowWaterPercent": 96}),
        ("reserve below read-only", {"readOnlyPercent": 98}),
    ):
        yield Case(
            kind,
            "spec.disk",
            "disk needs",
            name,
            _spec(disk=percents),
            _spec(disk={"lowWaterPercent": 95, "readOnlyPercent": 95, "reservePercent": 96}),
        )
    yield Case(
        kind,
        "spec.settings",
        "settings are named",
        "a variable's name",
        _spec(settings={"DAYBOOK_BOOKIE_FLUSH_BYTES": "1"}),
        _spec(settings={"flush_bytes": "1"}),
    )
    for taken in ("bookie_id", "zookeeper", "advertised_address", "tls_key", "disk_full_ratio"):
        yield Case(
            kind,
            "spec.settings",
            "settings cannot set",
            taken,
            _spec(settings={taken: "1"}),
            _spec(settings={"flush_bytes": "1"}),
        )
    for key in ("daybook.dev/pool", "app.kubernetes.io/name"):
        yield Case(
            kind,
            "spec.podTemplate.labels",
            "podTemplate.labels cannot",
            key,
            _spec(podTemplate={"labels": {key: "x"}}),
            _spec(podTemplate={"labels": {"team": "x"}}),
        )
    for refused, accepted in (("a b", "a.b"), ("-a", "a-a"), ("a_", "")):
        yield Case(
            kind,
            "spec.podTemplate.labels",
            "values of podTemplate.labels",
            f"value {refused!r}",
            _spec(podTemplate={"labels": {"team": refused}}),
            _spec(podTemplate={"labels": {"team": accepted}}),
        )


def _quorum_cases(kind: str) -> Iterator[Case]:
    yield Case(
        kind,
        "spec",
        "ensembleSize must",
        "E below Qw",
        _spec(ensembleSize=2, writeQuorum=3, ackQuorum=2),
        _spec(ensembleSize=3, writeQuorum=3, ackQuorum=2),
    )
    yield Case(
        kind,
        "spec",
        "writeQuorum must",
        "Qw below Qa",
        _spec(ensembleSize=3, writeQuorum=2, ackQuorum=3),
        _spec(ensembleSize=3, writeQuorum=2, ackQuorum=2),
    )


def _ledger_cases() -> Iterator[Case]:
    kind = "Ledger"
    yield from _quorum_cases(kind)
    seal = _spec(seal=True)
    yield Case(
        kind, "spec", "poolRef is immutable", "poolRef changed", _spec(poolRef={"name": "other"}), seal
    )
    begins = "ensembleSize, writeQuorum and ackQuorum are immutable"
    wide = _spec(ensembleSize=6)
    for field, values, beside in (
        ("ensembleSize", (5, 6), {}),
        ("writeQuorum", (4, 5), wide),
        ("ackQuorum", (1, 3), {}),
    ):
        yield from _immutable(kind, "spec", begins, (field,), values, neighbour=seal, beside=beside)
    yield from _immutable(
        kind,
        "spec",
        "customMetadata is immutable",
        ("customMetadata",),
        ({"a": "1"}, {"a": "2"}),
        neighbour=seal,
    )
    yield Case(
        kind,
        "spec",
        "customMetadata is immutable",
        "a key added",
        _spec(customMetadata={"b": "2"}),
        seal,
        before=_spec(customMetadata={"a": "1"}),
    )
    yield from _immutable(
        kind,
        "spec",
        "passwordSecretRef is immutable",
        ("passwordSecretRef",),
        ({"name": "one"}, {"name": "other"}),
        neighbour=seal,
    )
    yield from _immutable(kind, "spec", "ledgerId is immutable", ("ledgerId",), (7, 8), neighbour=seal)
    for what, after in (("seal taken back", _spec(seal=False)), ("seal taken out", _spec(seal=None))):
        yield Case(
            kind, "spec", "seal cannot", what, after, _spec(reclaimPolicy="Delete"), before=_spec(seal=True)
        )


def _topic_cases() -> Iterator[Case]:
    kind = "Topic"
    yield from _quorum_cases(kind)
    other = _spec(deduplication=True)
    yield Case(
        kind,
        "spec",
        "poolRef is immutable",
        "poolRef changed",
        _spec(poolRef={"name": "other"}),
        other,
        before={},
    )
    yield from _immutable(
        kind, "spec", "topicName is immutable", ("topicName",), ("one", "two"), neighbour=other
    )
    for field in ("tenant", "topicNamespace"):
        yield from _immutable(
            kind, "spec", "tenant and topicNamespace are", (field,), ("one", "two"), neighbour=other
        )
    for before, after, allowed in ((4, 3, 5), (0, 4, 0), (4, 0, 4)):
        yield Case(
            kind,
            "spec",
            "partitions can grow",
            f"{before} to {after} partitions",
            _spec(partitions=after),
            _spec(partitions=allowed, deduplication=True),
            before=_spec(partitions=before),
        )
    for field in ("tenant", "topicNamespace", "topicName"):
        yield Case(
            kind,
            f"spec.{field}",
            f"{field} may have",
            f"a slash in {field}",
            _spec(**{field: "a b"}),
            _spec(**{field: "a-=:._B9"}),
        )
    for wrong in ("big", "1023Ki"):
        yield Case(
            kind,
            "spec.segment.maxSize",
            "segment.maxSize must",
            f"segments of {wrong}",
            _spec(segment={"maxSize": wrong}),
            _spec(segment={"maxSize": "1Mi"}),
        )


def _topic_policy_cases() -> Iterator[Case]:
    kind = "Topic"
    for policy in ("Discard", "Forever"):
        for limit in ({"timeSeconds": 60}, {"size": "1Gi"}):
            yield Case(
                kind,
                "spec.retention",
                "retention.timeSeconds and",
                f"{policy} with {next(iter(limit))}",
                _spec(retention={"policy": policy, **limit}),
                _spec(retention={"policy": "Limit", **limit}),
            )
    yield Case(
        kind,
        "spec.retention",
        "retention.policy Limit",
        "no limit",
        _spec(retention={"policy": "Limit"}),
        _spec(retention={"policy": "Forever"}),
    )
    for wrong in ("big", "0"):
        yield Case(
            kind,
            "spec.retention.size",
            "retention.size must",
            f"retention of {wrong}",
            _spec(retention={"policy": "Limit", "size": wrong}),
            _spec(retention={"policy": "Limit", "size": "1"}),
        )
    yield Case(
        kind,
        "spec.compaction",
        "compaction.enabled needs",
        "no schedule",
        _spec(compaction={"enabled": True}),
        _spec(compaction={"enabled": True, "schedule": "0 3 * * *"}),
    )
    for wrong, right in (("hourly", "@hourly"), ("0 3 * *", "*/5 3 * * 1-5")):
        yield Case(
            kind,
            "spec.compaction.schedule",
            "compaction.schedule must",
            wrong,
            _spec(compaction={"schedule": wrong}),
            _spec(compaction={"schedule": right}),
        )


CASES: Final = (
    *_pool_cases(),
    *_pool_metadata_cases(),
    *_pool_storage_cases(),
    *_pool_detail_cases(),
    *_ledger_cases(),
    *_topic_cases(),
    *_topic_policy_cases(),
)
