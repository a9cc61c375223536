# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The JSON Schemas for editors accept what is loaded, and refuse what is not, where JSON Schema can say why."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import Model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import fields_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.conversion import ConversionError, canonical
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import path_components
from ansible_collections.modelplane.fleet.tests import editors
from ansible_collections.modelplane.fleet.tests.generated import generate
from ansible_collections.modelplane.fleet.tests.generated.json_schema import json_schema
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.api.test_parse import models_below
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.api.test_totality import (
    DOCUMENTS,
    mutate,
    outcome,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[6]
DATA = ROOT / "tests" / "data"

UNSAID = {
    "must not be above": "compares two fields",
    "must not be more than": "compares two fields",
    "infiniband.fabric must be equal": "compares two fields",
    "must be the first of nodePools": "compares two fields",
    "must have the same port": "compares items",
    "must be names of": "compares items with those of another list",
    "must be unique": "compares one field of all items",
    "duplicates locations": "compares items",
    "the sum of pods": "adds numbers up",
    "must be 1 to 20 together": "adds numbers up",
    "bytes in total": "adds lengths up",
    "64 bits": "numbers of editors have other limits",
}
"""Parts of messages about what JSON Schema cannot say, or not simply; with the reason."""


WRITTEN_BY_SERVERS = {"META-7", "META-8", "META-9"}
"""Rules of fields that people do not write, which the schemas leave out."""


def unsaid(message: str) -> bool:
    return any(part in message for part in UNSAID)


def manifests() -> Iterator[tuple[str, Any]]:
    folders = ("inventories/quickstart/manifests", "playbooks/files/classes", "docs/examples", "tests/data/manifests")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.yaml"))]
    for path in (DATA / "api" / "minimal.yaml", DATA / "api" / "complete.yaml", *paths):
        for number, document in enumerate(yaml.safe_load_all(path.read_text())):
            if document is not None:
                yield f"{path.relative_to(ROOT)}-{number}", document


MANIFESTS = dict(manifests())


@pytest.mark.parametrize("name", sorted(editors.schemas()))
def test_a_schema_is_one_of_draft_7(name: str) -> None:
    schema = editors.schemas()[name]
    assert schema["$schema"] == jsonschema.Draft7Validator.META_SCHEMA["$schema"]
    jsonschema.Draft7Validator.check_schema(schema)


def test_each_kind_has_a_schema() -> None:
    assert set(editors.schemas()) == {f"{name}.json" for name in (*KINDS, editors.ANY_KIND, *generate.RESULTS)}


def test_every_field_is_described() -> None:
    models: set[type[Model]] = set().union(*map(models_below, KINDS.values()))
    fields = [(model.__name__, wire, each.description) for model in models for wire, each in fields_of(model).items()]
    assert (
        sorted(f"{model}.{wire}" for model, wire, description in fields if not description.endswith((".", "…"))) == []
    )


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_accepted(name: str) -> None:
    assert [error.message for error in editors.problems(MANIFESTS[name])] == []


def test_a_wrong_document_is_refused_where_it_is_wrong(case: dict[str, Any]) -> None:
    found = list(editors.validator(case["kind"]).iter_errors(case["document"]))
    assert bool(found) != (unsaid(case["says"]) or case["rule"] in WRITTEN_BY_SERVERS)
    # What is missing or too much is a problem of the object that should have it, or should not.
    place = path_components(case["path"])
    assert not found or any(near(list(error.absolute_path), place) for error in found), found


def near(found: list[Any], place: list[Any]) -> bool:
    return found in (place, place[:-1]) or found[: len(place)] == place


def test_each_of_what_is_not_said_is_the_message_of_a_case(cases: list[dict[str, Any]]) -> None:
    said = [case["says"] for case in cases]
    assert [part for part in UNSAID if not any(part in message for message in said)] == []


def deployment() -> dict[str, Any]:
    return next(copy.deepcopy(each) for each in MANIFESTS.values() if each["kind"] == "ModelDeployment")


@pytest.mark.parametrize(
    ("path", "value", "place", "message"),
    [
        ("spec.replica", 2, "spec", "'replica' was unexpected"),
        ("spec.replicas", "2", "spec.replicas", "is not of type 'integer'"),
        ("spec.replicas", 1001, "spec.replicas", "greater than the maximum of 1000"),
        ("spec.template.spec.engines", None, "spec.template.spec", "'engines' is a required property"),
        ("spec.template.spec.engines", [], "spec.template.spec.engines", "[] should be non-empty"),
        (
            "spec.template.spec.serving",
            {"mode": "Split"},
            "spec.template.spec.serving.mode",
            "is not one of ['Unified'",
        ),
        ("metadata.name", "Qwen", "metadata.name", "does not match"),
        ("metadata.label", {}, "metadata", "'label' was unexpected"),
        ("apiVersion", "modelplane.ai/v1", "apiVersion", "'modelplane.ai/v1alpha1' was expected"),
        ("kind", "ModelDeploymant", "kind", "is not one of"),
        ("kind", None, "", "'kind' is a required property"),
    ],
)
def test_a_mistake_is_shown_at_its_place(change: Any, path: str, value: Any, place: str, message: str) -> None:
    (found,) = editors.problems(change(deployment(), {path: value}))
    assert list(found.absolute_path) == path_components(place)
    assert message in found.message


@pytest.mark.parametrize(
    ("document", "places"),
    [
        ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml-team"}}, []),
        ({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "spec": {"any": "thing"}}, []),
        ({"apiVersion": "modelplane.ai/v1alpha1", "kind": "ModelDeploymentList", "items": []}, []),
        ({"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Secret"}]}, []),
        ({"apiVersion": "v1", "kind": "List", "items": [{"kind": "ModelCache"}]}, [["items", 0], ["items", 0]]),
        ({"apiVersion": "modelplane.ai/v1alpha1", "kind": "Model"}, [["kind"]]),
        ([], [[]]),
    ],
)
def test_the_schema_is_chosen_by_api_version_and_kind(document: Any, places: list[Any]) -> None:
    found = [list(error.absolute_path) for error in editors.problems(document)]
    assert [place for place in places if place not in found] == []
    assert bool(found) == bool(places)


def of_kind(kind: str, spec: Any) -> dict[str, Any]:
    return {"apiVersion": KINDS[kind].group_version(), "kind": kind, "metadata": {"name": "a"}, "spec": spec}


EXISTING = {"source": "Existing", "existing": {"secretRef": {"name": "a"}}}


def pool(**fields: Any) -> dict[str, Any]:
    return of_kind("InferenceCluster", {"cluster": EXISTING, "nodePools": [{"name": "a", **fields}]})


def written(name: str) -> Any:
    return of_kind("ModelDeployment", yaml.safe_load((DATA / "formats" / f"{name}.yaml").read_text()))


@pytest.mark.parametrize(
    ("document", "accepted"),
    [
        (written("base"), True),
        (written("flat"), True),
        (written("split"), True),
        (written("split-canonical"), True),
        (pool(**{"class": "l4"}, maxNodes=4, fabric="EFA"), True),
        (pool(className="l4", fabric={"type": "EFA"}), True),
        (pool(fabric="EFA"), False),
        (pool(**{"class": "l4"}, className="l4"), False),
        (pool(className="l4", maxNodes=0), False),
        (pool(className="l4", maxNodes=1, maxNodeCount=1), False),
        (pool(className="l4", fabric="EFAA"), False),
        (of_kind("InferenceClass", {"resources": {"gpu": {"count": 8, "memory": "80Gi"}}}), True),
        (of_kind("InferenceClass", {"resources": {"gpu": {"cores": 8}}}), False),
        (of_kind("InferenceClass", {"resources": {}}), False),
        (of_kind("InferenceClass", {}), False),
        (of_kind("ModelEndpoint", {"url": "https://example.com", "api": "OpenAI"}), True),
    ],
)
def test_older_formats_are_judged_as_the_loader_does(document: dict[str, Any], accepted: bool) -> None:
    assert bool(editors.problems(document)) != accepted
    assert is_loaded(document) == accepted


def test_a_mistake_in_an_older_format_is_shown_at_its_place(change: Any) -> None:
    (found,) = editors.problems(change(written("flat"), {"spec.engines[0].copys": 2}))
    assert list(found.absolute_path) == ["spec", "engines", 0]


def is_loaded(document: Any) -> bool:
    try:
        return outcome(canonical(document).document)[0] is not None
    except ConversionError:
        return False


def is_plain(value: Any) -> bool:
    """Return whether a value means the same in JSON: a null is an absent field, and 2.0 no whole number, only to the
    loader; text is Unicode."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, str):
        return value.isprintable()
    return value is not None and not isinstance(value, float)


@cache
def current(kind: str) -> Any:
    return editors.validator_of(json_schema(KINDS[kind]))


@given(st.sampled_from(DOCUMENTS), st.data())
@settings(max_examples=100, deadline=None)
def test_schema_and_models_agree(document: dict[str, Any], data: st.DataObject) -> None:
    changed = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 2))):
        mutate(changed, data)
    assume(is_plain(changed))
    if is_loaded(changed):
        assert editors.problems(changed) == []
    if current(document["kind"]).is_valid(changed):
        assert [problem for problem in outcome(changed)[1] if not unsaid(problem.message)] == []
