# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import json
import random
import zlib
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.decision import (
    LARGEST,
    DecisionError,
    DesiredState,
    Entry,
    Head,
    packed,
    packed_index,
    unpacked,
    unpacked_index,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import PART_BYTES
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.managed_fields import digest

KINDS = [("", "ConfigMap"), ("apps", "Deployment")]


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "mp-here"}, "data": data}


def state(*objects: dict[str, Any]) -> DesiredState:
    copy = {"cluster": "east", "from": {"name": "a"}, "to": {"namespace": "mp-here", "name": "b"}}
    return DesiredState(
        objects, (copy,), frozenset({(("modelplane.ai/service", "chat"), ("modelplane.ai/namespace", "ai"))})
    )


def test_a_desired_state_is_read_as_it_was_packed() -> None:
    given = state(config_map("settings", a="1"), config_map("ümläut"))
    entry, parts = packed(given)
    assert (entry.parts, len(parts)) == (1, 1)
    assert unpacked(entry, parts, KINDS) == given
    assert packed(given) == (entry, parts)
    assert packed(state(config_map("settings", a="2")))[0].digest != entry.digest
    assert unpacked(*packed(DesiredState()), KINDS) == DesiredState()


def test_what_is_too_large_for_a_config_map_is_kept_in_parts() -> None:
    noise = random.Random(1).randbytes(2 * PART_BYTES).hex()
    given = state(config_map("large", noise=noise))
    entry, parts = packed(given)
    assert entry.parts == len(parts) > 1
    assert max(map(len, parts)) <= PART_BYTES
    assert unpacked(entry, parts, KINDS) == given
    for wrong in (parts[:1], parts[1:], parts[::-1]):
        with pytest.raises(DecisionError, match="was changed"):
            unpacked(entry, wrong, KINDS)


def test_an_index_is_read_as_it_was_packed() -> None:
    index = {"east": Entry("0f", 1), "west": Entry("a0", 3)}
    entry, parts = packed_index(index)
    assert unpacked_index(entry.digest, parts) == index
    with pytest.raises(DecisionError, match="was changed"):
        unpacked_index("00", parts)


@pytest.mark.parametrize("kind", ["Secret", "ClusterRoleBinding", "Deployment"])
def test_an_object_that_no_fleet_composes_is_refused(kind: str) -> None:
    entry, parts = packed(state({**config_map("it"), "kind": kind}))
    with pytest.raises(DecisionError, match="no fleet composes"):
        unpacked(entry, parts, KINDS)


@pytest.mark.parametrize("namespace", ["kube-system", "default", "mpx", ""])
def test_an_object_in_a_namespace_that_is_not_of_the_fleet_is_refused(namespace: str) -> None:
    value = config_map("it")
    value["metadata"]["namespace"] = namespace
    entry, parts = packed(state(value))
    with pytest.raises(DecisionError, match="no fleet composes"):
        unpacked(entry, parts, KINDS)


OF_GATEWAYS = [
    ("cert-manager.io/v1", "ClusterIssuer", "inference-gateway-ca"),
    ("trust.cert-manager.io/v1alpha1", "Bundle", "inference-gateway-ca"),
    ("trust.cert-manager.io/v1alpha1", "Bundle", "cluster-gateway-ca"),
]


def unplaced(api_version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}


def test_what_gateways_have_without_a_namespace_is_read() -> None:
    kinds = [(api_version.partition("/")[0], kind) for api_version, kind, _ in OF_GATEWAYS]
    given = state(*(unplaced(*each) for each in OF_GATEWAYS))
    assert unpacked(*packed(given), kinds) == given


@pytest.mark.parametrize(
    "value",
    [
        unplaced("cert-manager.io/v1", "ClusterIssuer", "of-others"),
        unplaced("cert-manager.io/v1", "ClusterIssuer", "cluster-gateway-ca"),
        unplaced("cert-manager.io/v1", "Issuer", "inference-gateway-ca"),
        unplaced("trust.cert-manager.io/v1alpha1", "Bundle", "public-roots"),
    ],
    ids=lambda value: f"{value['kind']} {value['metadata']['name']}",
)
def test_anything_else_without_a_namespace_is_refused(value: dict[str, Any]) -> None:
    kinds = [("cert-manager.io", "ClusterIssuer"), ("cert-manager.io", "Issuer"), ("trust.cert-manager.io", "Bundle")]
    with pytest.raises(DecisionError, match="no fleet composes"):
        unpacked(*packed(state(value)), kinds)


@pytest.mark.parametrize(
    "value",
    [[], {"east": ["0f"]}, {"east": ["0f", 0]}, {"east": ["0f", 10**9]}, {"east": [1, 1]}, {"east": None}],
)
def test_an_index_of_another_shape_is_refused(value: Any) -> None:
    with pytest.raises(DecisionError):
        unpacked_index(digest(value), [zlib.compress(json.dumps(value).encode())])


@pytest.mark.parametrize(
    "data",
    [b"", b"no zlib", zlib.compress(b"no JSON"), zlib.compress(b"[" * 100_000), zlib.compress(b"{}")[:-1]],
    ids=["nothing", "not compressed", "not JSON", "deep", "cut"],
)
def test_data_that_was_not_packed_is_refused(data: bytes) -> None:
    with pytest.raises(DecisionError):
        unpacked(Entry(digest({}), 1), [data], KINDS)


def test_data_that_grows_without_bound_is_refused() -> None:
    with pytest.raises(DecisionError):
        unpacked(Entry(digest({}), 1), [zlib.compress(b" " * (LARGEST + 1))], KINDS)


def test_a_head_is_read_as_it_was_written() -> None:
    head = Head(7, "0f", "runner/run-1", "2026-01-01T00:00:00Z", whole=True)
    assert Head.of(head.data()) == head
    for name, value in (("format", "other"), ("generation", "0"), ("generation", "-1"), ("generation", "9" * 30)):
        with pytest.raises(DecisionError, match="not in the format"):
            Head.of({**head.data(), name: value})
