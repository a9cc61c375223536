# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Observations as documents, and questions to objects that anybody may have written."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    Component,
    ObservationError,
    Observed,
    ObservedBudget,
    ObservedCluster,
    parse,
    wire,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import (
    Objects,
    condition,
    entries,
    fields,
    first_address,
    is_true,
    number,
    text,
)
from hypothesis import given
from hypothesis import strategies as st

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "team", "labels": {"app": "x"}}}
OTHER = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "namespace": "team", "labels": {"app": "x"}}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
DOCUMENT: dict[str, Any] = {
    "control": {
        "objects": [NODE],
        "secrets": [{"namespace": "team", "name": "hf", "keys": ["HF_TOKEN", "A"]}],
        "unread": "it is forbidden",
        "controller": {"ready": True, "message": "up"},
    },
    "clusters": {
        "east": {
            "unreachable": "",
            "provisioned": {"ready": False, "message": "CREATING"},
            "stack": {"ready": True, "message": ""},
            "nodes": {"gpu": 3},
            "budgets": [
                {"namespace": "team", "policy": "acme", "name": "daily", "used": {"alice": 7}, "resets": "2026-11-28"},
                {"namespace": "team", "policy": "acme", "name": "hourly", "problem": "it does not answer"},
            ],
            "objects": [POD, OTHER],
        },
        "west": {"unreachable": "connection refused"},
        "lab": {"declared": True},
    },
}


REACHED = {"control": {"controller": {"ready": True, "message": "", "addresses": ["10.0.0.1:30080", "b:30080"]}}}


def test_a_document_is_read() -> None:
    observed = parse(DOCUMENT)
    assert observed.controller == Component(True, "up")
    assert observed.unread == "it is forbidden"
    assert observed.secret_keys == {("team", "hf"): frozenset({"HF_TOKEN", "A"})}
    assert observed.control.find("Node", "", "n") == NODE
    east = observed.clusters["east"]
    assert (east.provisioned, east.stack, east.nodes) == (Component(message="CREATING"), Component(True), {"gpu": 3})
    assert parse(REACHED).controller == Component(True, "", ("10.0.0.1:30080", "b:30080"))
    assert list(east.objects) == [POD, OTHER]
    assert east.budgets == (
        ObservedBudget("team", "acme", "daily", {"alice": 7}, "2026-11-28"),
        ObservedBudget("team", "acme", "hourly", problem="it does not answer"),
    )
    assert observed.clusters["west"] == ObservedCluster(unreachable="connection refused")
    assert observed.clusters["lab"] == ObservedCluster(declared=True)


@pytest.mark.parametrize(
    "document", [DOCUMENT, REACHED, {}, {"clusters": {"a": {"objects": []}}}, {"control": None}, None]
)
def test_what_is_written_is_read_again(document: Any) -> None:
    observed = parse(document)
    assert parse(wire(observed)) == observed
    assert wire(parse(wire(observed))) == wire(observed)


def test_order_means_nothing() -> None:
    turned = {
        "clusters": {
            "west": DOCUMENT["clusters"]["west"],
            "lab": DOCUMENT["clusters"]["lab"],
            "east": {**DOCUMENT["clusters"]["east"], "objects": [OTHER, POD, OTHER]},
        },
        "control": DOCUMENT["control"],
    }
    assert wire(parse(turned)) == wire(parse(DOCUMENT))


def inside(**fields: Any) -> dict[str, Any]:
    return {"clusters": {"east": fields}}


def objects(*values: Any) -> dict[str, Any]:
    return inside(objects=list(values))


def secret(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "n"}, **fields}


APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": '{"data": {"a": "c2VjcmV0"}}'}

REFUSED = {
    "no mapping": ([], "the observation: expected a mapping"),
    "unknown key": ({"cluster": {}}, "cluster: expected no such key. Did you mean clusters?"),
    "unknown key below": (inside(object=[]), "clusters.east.object: expected no such key. Did you mean objects?"),
    "key that is no text": ({"clusters": {1: {}}}, "clusters: expected keys that are text (got 1)"),
    "cluster that is no mapping": ({"clusters": {"east": "up"}}, 'clusters.east: expected a mapping (got "up")'),
    "cluster that is not observed": ({"clusters": {"east": None}}, "clusters.east.objects: expected what was seen"),
    "cluster without objects": (inside(stack={"ready": True}), "clusters.east.objects: expected what was seen"),
    "ready that is no bool": (
        inside(stack={"ready": "yes"}),
        'clusters.east.stack.ready: expected true or false (got "yes")',
    ),
    "message that is no text": (inside(stack={"message": 1}), "clusters.east.stack.message: expected text (got 1)"),
    "declared that is no truth": (inside(declared="yes"), 'clusters.east.declared: expected true or false (got "yes")'),
    "declared and observed": (
        inside(declared=True, nodes={"gpu": 1}),
        "clusters.east.nodes: expected nothing beside declared",
    ),
    "unreachable that is no text": (inside(unreachable=True), "clusters.east.unreachable: expected text (got true)"),
    "negative nodes": (inside(nodes={"gpu": -1}), 'clusters.east.nodes["gpu"]: expected a number of nodes (got -1)'),
    "nodes that are a truth": (inside(nodes={"gpu": True}), 'clusters.east.nodes["gpu"]: expected a number of nodes'),
    "objects that are no list": (inside(objects={}), "clusters.east.objects: expected a list (got a mapping)"),
    "object that is no mapping": (objects("pod"), 'clusters.east.objects[0]: expected a Kubernetes object (got "pod")'),
    "object without kind": (objects({"apiVersion": "v1"}), "clusters.east.objects[0].kind: expected text (got null)"),
    "object without version": (objects({"kind": "Pod"}), "clusters.east.objects[0].apiVersion: expected text"),
    "object without metadata": (
        objects({"kind": "Pod", "apiVersion": "v1"}),
        "objects[0].metadata: expected a mapping",
    ),
    "object without name": (objects({**POD, "metadata": {}}), "clusters.east.objects[0].metadata.name: expected text"),
    "odd namespace": (
        objects({**POD, "metadata": {"name": "a", "namespace": 1}}),
        "objects[0].metadata.namespace: expected text",
    ),
    "list of objects": (objects({"kind": "PodList", "apiVersion": "v1", "items": []}), "give the items of the PodList"),
    "two of one": (
        objects(POD, {**POD, "status": {}}),
        "clusters.east.objects[1]: expected each object once; Pod team/a",
    ),
    "data": (objects(secret(data={"a": "c2VjcmV0"})), "objects[0].data: expected no values of Secrets"),
    "stringData": (
        objects(secret(stringData={"a": "c2VjcmV0"})),
        "objects[0].stringData: expected no values of Secrets",
    ),
    "applied": (objects(secret(metadata={"name": "s", "annotations": APPLIED})), "expected no values of Secrets"),
    "keys with values": (
        {"control": {"secrets": [{"namespace": "n", "name": "s", "keys": {"a": "c2VjcmV0"}}]}},
        "control.secrets[0].keys: expected a list of the names of the keys, without their values",
    ),
    "keys that are no list": (
        {"control": {"secrets": [{"namespace": "n", "name": "s", "keys": "c2VjcmV0"}]}},
        "control.secrets[0].keys: expected a list of the names of the keys",
    ),
    "secret without name": ({"control": {"secrets": [{"namespace": "n"}]}}, "control.secrets[0].name: expected text"),
    "secret twice": (
        {"control": {"secrets": [{"namespace": "n", "name": "s"}] * 2}},
        "control.secrets[1]: expected each Secret once; n/s is there twice",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_observation_is_refused(name: str) -> None:
    document, said = REFUSED[name]
    with pytest.raises(ObservationError) as caught:
        parse(document)
    assert said in str(caught.value)
    assert "c2VjcmV0" not in str(caught.value)
    assert (caught.value.path or "the observation") in said or caught.value.path.startswith("clusters.east.objects[0]")


def test_a_secret_without_values_is_an_object_as_any_other() -> None:
    assert parse(objects(secret())).clusters["east"].objects.find("Secret", "n", "s") == secret()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, st.sampled_from(["", "control", "clusters", "object"]))
def test_any_document_is_read_or_refused(value: Any, place: str) -> None:
    document = {
        "": value,
        "control": {"control": value},
        "clusters": {"clusters": {"a": value}},
        "object": objects(value),
    }
    try:
        observed = parse(document[place])
    except ObservationError:
        return
    assert parse(wire(observed)) == observed


@given(JSON)
def test_questions_to_odd_objects_have_answers(value: Any) -> None:
    for odd in (value, {"metadata": value, "status": value}, {"status": {"conditions": value, "addresses": value}}):
        assert condition(odd, "Ready") in ("True", "False", "Unknown")
        assert isinstance(first_address(odd), str)
        assert isinstance(fields(odd, "status"), dict)
        assert isinstance(entries(odd, "status", "conditions"), list)
        assert isinstance(text(odd, "status", "phase"), str)
        assert number(odd, "status", "replicas", default=7) is not None
    if isinstance(value, dict):
        list(Objects([value, {**value, "metadata": value}]))


def test_objects_are_found_by_what_they_are() -> None:
    old = {"apiVersion": "inference.networking.x-k8s.io/v1alpha2", "kind": "InferencePool", "metadata": {"name": "p"}}
    new = {"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": "p"}}
    found = Objects([old, new, OTHER, POD])
    assert found.like({**old, "apiVersion": "inference.networking.x-k8s.io/v1"}) == old
    assert found.like(new) == new
    assert found.like({**new, "apiVersion": "other/v1"}) is None
    assert found.find("InferencePool", "", "p") == new
    assert list(found.of_kind("Pod")) == [POD, OTHER]
    assert list(found.labelled("Pod", "team", "app", "x")) == [POD, OTHER]
    assert not found.labelled("Pod", "team", "app", "y")
    assert not found.labelled("Pod", "other", "app", "x")


CONDITIONS = {
    "true": ([{"type": "Ready", "status": "True"}], "True"),
    "false": ([{"type": "Ready", "status": "False"}], "False"),
    "other type": ([{"type": "Available", "status": "True"}], "Unknown"),
    "none": ([], "Unknown"),
    "of this generation": ([{"type": "Ready", "status": "True", "observedGeneration": 2}], "True"),
    "of an older generation": ([{"type": "Ready", "status": "True", "observedGeneration": 1}], "Unknown"),
    "odd status": ([{"type": "Ready", "status": True}], "Unknown"),
    "contradiction": ([{"type": "Ready", "status": "True"}, {"type": "Ready", "status": "False"}], "Unknown"),
    "odd entries": (["Ready", None, {"type": "Ready", "status": "True"}], "True"),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_condition(name: str) -> None:
    values, said = CONDITIONS[name]
    for order in (values, values[::-1]):
        assert condition({"metadata": {"generation": 2}, "status": {"conditions": order}}, "Ready") == said


def test_a_status_of_an_older_generation_says_nothing() -> None:
    status = {"conditions": [{"type": "Available", "status": "True"}], "observedGeneration": 1}
    assert is_true({"metadata": {"generation": 1}, "status": status}, "Available")
    assert condition({"metadata": {"generation": 2}, "status": status}, "Available") == "Unknown"


def test_first_address_prefers_ip_addresses() -> None:
    name, address = {"type": "Hostname", "value": "a.example"}, {"type": "IPAddress", "value": "192.0.2.1"}
    assert first_address({"status": {"addresses": [name, address]}}) == "192.0.2.1"
    assert first_address({"status": {"addresses": [{"type": "IPAddress"}, name]}}) == "a.example"
    assert first_address({"status": {"addresses": [{"value": "192.0.2.2"}]}}) == "192.0.2.2"
    assert first_address(None) == ""


def test_objects_are_equal_when_all_of_them_are() -> None:
    assert Objects([POD, OTHER]) == Objects([OTHER, POD])
    assert Objects([POD]) != Objects([OTHER])
    assert Objects([POD]) != Objects([POD, OTHER])
    assert Objects([POD]) != Objects([{**POD, "status": {}}])
    assert Objects() != []


def test_an_empty_observation_knows_nothing() -> None:
    assert parse({}) == Observed()
