# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whatever a cluster has: a check ends, and every finding says what, where and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import check
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.finding import report
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import (
    EVERYTHING,
    Snapshot,
    desired_of,
)
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.checks.places import (
    GOOD,
    RIGHTS,
    balancer,
    desired,
    inference_cluster,
    node,
    pool,
    resource_slice,
    resources,
    storage_class,
    taint,
    thing,
    workload,
)
from hypothesis import given, settings
from hypothesis import strategies as st

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["²", "v1.²", "٣", "gpu", "rwx"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
OBJECTS: list[Any] = [
    node("gpu-0", "gpu", taints=[taint("a", value="b")], gpus=2, kubelet="v1.33.0"),
    storage_class("rwx", "ebs.csi.aws.com"),
    balancer("web", "192.0.2.1"),
    workload("DaemonSet", "kube-system", "plugin", "nvcr.io/nvidia/k8s-device-plugin:1"),
    resource_slice("gpu-0"),
    thing("Namespace", "dra-driver-nvidia-gpu", labels={"pod-security.kubernetes.io/enforce": "restricted"}),
    inference_cluster(pool(maxNodeCount=3, minNodeCount=0)),
]


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where something is, at every depth."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from paths(each, (*path, key))


@st.composite
def spoiled(draw: st.DrawFn, value: Any) -> Any:
    """A value with something else in place of a few of its parts."""
    found = deepcopy(value)
    for path in draw(st.lists(st.sampled_from(list(paths(value))), max_size=6)):
        place = found
        for key in path[:-1]:
            # What is above may be spoiled already.
            place = place[key] if isinstance(place, dict) and key in place else place
            place = place[key] if isinstance(place, list) and isinstance(key, int) and key < len(place) else place
        if isinstance(place, dict) or (isinstance(place, list) and isinstance(path[-1], int) and path[-1] < len(place)):
            place[path[-1]] = draw(JUNK)
    return found


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    found = [value for value in draw(spoiled(OBJECTS)) if isinstance(value, dict)]
    snapshot = replace(GOOD, **dict.fromkeys(LISTS, found))
    return replace(
        snapshot,
        version=draw(st.sampled_from([(1, 33), (1, 36)])),
        devices=draw(st.booleans()),
        definitions=dict.fromkeys(draw(st.lists(st.sampled_from(DEFINITIONS))), ""),
        objects={name: found[-1] for name in DEFINITIONS if found},
        denied=frozenset(draw(st.lists(st.sampled_from([EVERYTHING, *RIGHTS]), max_size=5))),
        openshift=draw(st.none() | st.just(frozenset[str]())),
        unread=dict.fromkeys(draw(st.lists(st.sampled_from(["Node", "Secret", "StorageClass"]), max_size=2)), "no"),
    )


PLANNED = desired().planned
LISTS = {
    *("nodes", "storage_classes", "services", "workloads", "gateway_classes", "device_classes", "slices"),
    *("namespaces", "policies"),
}
DEFINITIONS = ["gateways.gateway.networking.k8s.io", "certificates.cert-manager.io", "things.leaderworkerset.x-k8s.io"]


@given(snapshots(), spoiled(OBJECTS[-1]))
@settings(max_examples=100)
def test_a_check_ends_and_every_finding_is_whole(snapshot: Snapshot, cluster: Any) -> None:
    want = desired_of("onprem", resources(cluster=cluster), planned=PLANNED, rights=RIGHTS)
    findings = check(snapshot, want)
    for finding in findings:
        assert all(finding.wire().values()), finding
        assert "\n" not in finding.hint
    assert check(snapshot, want) == findings
    assert [each.severity for each in findings] == sorted(each.severity for each in findings)
    assert len(report("onprem", findings)) == 1 + 2 * len(findings)
