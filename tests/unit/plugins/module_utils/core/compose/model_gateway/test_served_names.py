# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names under which engines serve their model: those that gateways in mode Model ask for, and no others."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    DEPLOYMENT,
    Document,
    build,
    cluster,
    document,
    entry,
    fleet,
    gateway,
    provider,
    provider_entry,
    service,
)

VARIABLE = {"name": "MODELPLANE_SERVED_MODEL_NAME", "value": "ml-team/qwen"}
FLAG = "--served-model-name=$(MODELPLANE_SERVED_MODEL_NAME)"
PATH = document("InferenceGateway", "default", {"backend": "Traefik", "traefik": {"version": "40.2.0"}})


def deployment(**container: Any) -> Document:
    changed = deepcopy(DEPLOYMENT)
    member = changed["spec"]["template"]["spec"]["engines"][0]["members"][0]
    member["template"]["spec"]["containers"][0].update(container)
    return changed


def engine(*documents: Document, **replaced: Document) -> Document:
    """The container of the engine on a cluster, with the deployment of it."""
    (found,) = [
        value
        for value in build(fleet(*documents, **replaced)).of("Deployment", "east")
        if value["spec"]["template"]["spec"]["containers"][0]["name"] == "engine"
    ]
    container: Document = found["spec"]["template"]["spec"]["containers"][0]
    return container


def own_args(container: Document) -> list[str]:
    """The arguments of a container without that for its end."""
    return [each for each in container["args"] if not each.startswith("--shutdown-timeout=")]


@pytest.mark.parametrize(
    ("container", "args"),
    [
        ({"args": ["--model=m"]}, ["--model=m", FLAG]),
        ({"args": ["--model=m", FLAG]}, ["--model=m", FLAG]),
        ({"args": ["--served-model-name", "m", "ml-team/qwen"]}, ["--served-model-name", "m", "ml-team/qwen"]),
        ({"image": "example.com/own:1", "args": ["serve"]}, ["serve"]),
        ({"args": ["--served-model-name=$(OWN)"]}, ["--served-model-name=$(OWN)"]),
        ({"args": ["$(OWN)"]}, ["$(OWN)"]),
        ({"args": ["--config=/a.yaml"]}, ["--config=/a.yaml"]),
    ],
    ids=["added", "by the variable", "among others", "another program", "an unknown name", "unknown flags", "a file"],
)
def test_an_engine_that_a_gateway_reaches_serves_the_name_that_it_asks_for(
    container: Document, args: list[str]
) -> None:
    found = engine(service(), qwen=deployment(**container))
    assert found["env"][0] == VARIABLE
    assert own_args(found) == args


def test_a_variable_of_the_user_stays() -> None:
    own = {"name": "OWN", "value": "1"}
    assert engine(service(), qwen=deployment(env=[own]))["env"] == [VARIABLE, own]


@pytest.mark.parametrize(
    "documents",
    [(), (service(provider_entry("a")), provider("a")), (service(entry(), labels={"tier": "other"}),)],
    ids=["no service", "a service of others", "a service that the gateway does not serve"],
)
def test_an_engine_that_no_gateway_reaches_stays_as_it_is(documents: tuple[Document, ...]) -> None:
    selecting = gateway(serviceSelector={"matchLabels": {"tier": "gold"}})
    found = engine(*documents, eu=selecting, qwen=deployment(args=["--model=m"]))
    assert "env" not in found
    assert own_args(found) == ["--model=m"]


def in_region(name: str, region: str) -> Document:
    changed = cluster(name, "203.0.113.10")
    changed["spec"]["placement"] = {"metadata": {"labels": {"where": region, "app.kubernetes.io/managed-by": "me"}}}
    return changed


def test_services_select_replicas_by_labels_that_their_clusters_give() -> None:
    here = service({"selector": {"matchLabels": {"where": "here"}}})
    clusters = {"east": in_region("east", "here"), "west": in_region("west", "there")}
    built = build(fleet(here, **clusters))
    endpoints = {each.labels["modelplane.ai/cluster"]: each for each in built.plan.traffic.endpoints}
    assert {name: each.labels["where"] for name, each in endpoints.items()} == {"east": "here", "west": "there"}
    assert endpoints["east"].labels["app.kubernetes.io/managed-by"] == "modelplane.fleet"
    rules = built("AIGatewayRoute", "chat")["spec"]["rules"]
    (backend,) = (each["name"] for rule in rules for each in rule["backendRefs"])
    assert endpoints["east"].name in backend
    # It is asked for by its name, which the engine has to know.
    assert engine(here, **clusters)["env"] == [VARIABLE]


def test_labels_of_a_template_override_those_of_a_cluster() -> None:
    written = deployment()
    written["spec"]["template"]["metadata"] = {"labels": {"where": "anywhere"}}
    built = build(fleet(service(), east=in_region("east", "here"), qwen=written))
    assert {each.labels["where"] for each in built.plan.traffic.endpoints} == {"anywhere"}
    without = build(fleet(service(), qwen=written)).plan.traffic.endpoints
    assert built.plan.traffic.endpoints[0].labels.keys() == without[0].labels.keys()


def test_a_gateway_in_mode_path_asks_for_no_name() -> None:
    found = engine(service(), eu=PATH, qwen=deployment(args=["--model=m"]))
    assert "env" not in found
    assert own_args(found) == ["--model=m"]
