# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names under which engines serve their model: those that gateways in mode Model ask for, and no others."""

from __future__ import annotations

import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from model_fleet import DEPLOYMENT, Document, build, document, entry, fleet, gateway, provider, provider_entry, service

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


@pytest.mark.parametrize(
    ("container", "args"),
    [
        ({"args": ["--model=m"]}, ["--model=m", FLAG]),
        ({"args": ["--model=m", FLAG]}, ["--model=m", FLAG]),
        ({"args": ["--served-model-name", "m", "ml-team/qwen"]}, ["--served-model-name", "m", "ml-team/qwen"]),
        ({"image": "example.com/own:1", "args": ["serve"]}, ["serve"]),
    ],
    ids=["added", "by the variable", "among others", "another program"],
)
def test_an_engine_that_a_gateway_reaches_serves_the_name_that_it_asks_for(
    container: Document, args: list[str]
) -> None:
    found = engine(service(), qwen=deployment(**container))
    assert found["env"][0] == VARIABLE
    assert found["args"] == args


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
    assert found["args"] == ["--model=m"]


def test_a_gateway_in_mode_path_asks_for_no_name() -> None:
    found = engine(service(), eu=PATH, qwen=deployment(args=["--model=m"]))
    assert "env" not in found
    assert found["args"] == ["--model=m"]
