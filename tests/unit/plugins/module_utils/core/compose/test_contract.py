# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""From a valid deployment to objects: what the API models take, the composer can compose, and the other way round."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import PlacedEngine, PlacedMember
from ansible_collections.modelplane.fleet.tests.written import model_endpoint, model_replica, replica_objects
from hypothesis import given
from hypothesis import strategies as st

MANIFESTS = next(parent for parent in Path(__file__).parents if parent.name == "tests") / "data" / "manifests"

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def deployments() -> list[Any]:
    """Every ModelDeployment of the example manifests."""
    found = []
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document["kind"] == "ModelDeployment":
                found.append(pytest.param(document, id=str(path.relative_to(MANIFESTS))))
    return found


def placed(deployment: dict[str, Any]) -> list[PlacedEngine]:
    """A placement that takes every request of a member as a claim."""
    return [
        PlacedEngine(
            engine["name"],
            tuple(
                PlacedMember(
                    "pool",
                    tuple(
                        {**request, "deviceClassName": "gpu.nvidia.com"}
                        for request in member.get("nodeSelector", {}).get("devices", ())
                    ),
                )
                for member in engine["members"]
            ),
        )
        for engine in deployment["spec"]["template"]["spec"]["engines"]
    ]


@pytest.mark.parametrize("deployment", deployments())
def test_replicas_and_endpoints_of_the_examples_are_valid(deployment: dict[str, Any]) -> None:
    replica = model_replica(deployment, "gpu-us-east", 0, placed(deployment))
    endpoint = model_endpoint(replica, "http://[2001:db8::1]")
    for document in (replica, endpoint):
        assert api.wire(api.parse(document), set_only=True) == document


label_values = st.from_regex(LABEL_VALUE, fullmatch=True).filter(lambda value: len(value) <= 63)
labels = st.dictionaries(st.from_regex(r"[a-z]([-a-z0-9_.]{0,20}[a-z0-9])?", fullmatch=True), label_values, max_size=3)
dns_labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)

overrides = st.fixed_dictionaries({}, optional={"image": texts.filter(bool), "args": st.lists(texts, max_size=3)})
configs = st.dictionaries(
    texts.filter(lambda key: key != "kind"),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)


@st.composite
def containers(draw: st.DrawFn) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "engine", "image": draw(texts.filter(bool))}
    for field in ("command", "args"):
        if draw(st.booleans()):
            container[field] = draw(st.lists(texts, max_size=3))
    if draw(st.booleans()):
        container["env"] = [{"name": "A", "value": draw(texts)}]
    return container


@st.composite
def members(draw: st.DrawFn, role: str) -> dict[str, Any]:
    metadata = {"labels": draw(labels), "annotations": {"note": draw(texts)}}
    member: dict[str, Any] = {
        "role": role,
        "nodeSelector": {"devices": [{"name": "gpu", "selectors": [{"cel": "true"}]}]},
        "template": {"metadata": metadata, "spec": {"containers": [draw(containers())]}},
    }
    if role == "Worker" and draw(st.booleans()):
        member["worker"] = {"nodes": draw(st.integers(1, 63))}
    return member


@st.composite
def valid_deployments(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(dns_labels, min_size=2, max_size=3, unique=True))
    disaggregated = draw(st.booleans())
    engines = []
    for name, phase in zip(names, ("Decode", "Prefill", None), strict=False):
        if disaggregated and phase is None:
            break
        roles = draw(st.sampled_from([("Standalone",), ("Leader", "Worker"), ("Worker", "Leader")]))
        engine = {"name": name, "copies": draw(st.integers(1, 64)), "members": [draw(members(role)) for role in roles]}
        engines.append({**engine, "phase": phase} if disaggregated else engine)
    body: dict[str, Any] = {"engines": engines}
    if disaggregated:
        body["serving"] = {"mode": "PrefillDecode", **draw(st.fixed_dictionaries({}, optional={"sidecar": overrides}))}
    if draw(st.booleans()):
        body.setdefault("serving", {})["picker"] = {**draw(overrides), "config": draw(configs)}
    if draw(st.booleans()):
        body["modelCacheRef"] = {"name": draw(dns_labels)}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {
            "name": draw(dns_labels),
            "namespace": draw(dns_labels),
        },
        "spec": {"replicas": 1, "template": {"metadata": {"labels": draw(labels)}, "spec": body}},
    }


@given(deployment=valid_deployments(), index=st.integers(0, 999))
def test_h5_whatever_is_valid_composes_into_objects_with_valid_names(deployment: dict[str, Any], index: int) -> None:
    api.parse(deployment)
    replica = model_replica(deployment, "gpu-us-east", index, placed(deployment))
    assert api.wire(api.parse(replica), set_only=True) == replica
    objects = replica_objects(replica)
    config = deployment["spec"]["template"]["spec"].get("serving", {}).get("picker", {}).get("config")
    if config is not None:
        (written,) = (each["data"]["epp-config.yaml"] for each in objects if each["kind"] == "ConfigMap")
        assert yaml.safe_load(written) == config
    identities = {(each["kind"], each["metadata"]["name"]) for each in objects}
    assert len(identities) == len(objects)
    for each in objects:
        name = each["metadata"]["name"]
        assert DNS_LABEL.fullmatch(name)
        assert len(name) <= 63
        for value in each["metadata"]["labels"].values():
            assert LABEL_VALUE.fullmatch(value)
            assert len(value) <= 63
