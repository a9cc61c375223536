# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""parse and wire: what is accepted, what is refused, and in which words."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import (
    KINDS,
    InferenceCluster,
    InvalidResource,
    ModelDeployment,
    parse,
    wire,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import Model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import Shape, fields_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, Ref

DATA = Path(__file__).resolve().parents[5] / "data"
CONTAINER = "spec.template.spec.engines[0].members[0].template.spec.containers[0]"
JARGON = ("pydantic", "Input should", "input_", "Extra inputs", "ValidationError", "type=", "https://errors")


def problems_of(document: Any) -> tuple[Problem, ...]:
    with pytest.raises(InvalidResource) as caught:
        parse(document)
    return caught.value.problems


def models_below(model: type[Model]) -> set[type[Model]]:
    found = {model}
    waiting: list[Shape | None] = [field.shape for field in fields_of(model).values()]
    while waiting:
        shape = waiting.pop()
        if shape is None:
            continue
        waiting.append(shape.item)
        if shape.model is not None and shape.model not in found:
            found |= models_below(shape.model)
    return found


def test_minimal_documents_parse_and_come_back(minimal: dict[str, Any], kind: str) -> None:
    resource = parse(minimal[kind])
    assert type(resource) is KINDS[kind]
    assert resource.kind == kind
    assert wire(resource, set_only=True) == minimal[kind]
    assert parse(wire(resource)) == resource


def test_refused_in_words(case: dict[str, Any]) -> None:
    problems = problems_of(case["document"])
    matching = [
        problem
        for problem in problems
        if problem.path == case["path"] and case["says"] in problem.message and case.get("hint", "") in problem.hint
    ]
    assert len(matching) == 1, problems
    if case.get("alone", True):
        assert len(problems) == 1, problems
    for problem in problems:
        assert not any(word in str(problem) for word in JARGON), problem
        assert len(problem.value) <= 60
        nameless = case["rule"] in ("name missing", "metadata missing")
        assert problem.ref is None if nameless else problem.ref.kind == case["kind"]


def test_every_rule_has_a_case(cases: list[dict[str, Any]]) -> None:
    declared = {
        identifier
        for kind in KINDS.values()
        for model in models_below(kind)
        for rule in model.RULES
        for identifier in rule.ids
    }
    assert declared - {case["rule"] for case in cases} == set()
    assert {"IG-1", "IC-8", "MD-20", "MR-14", "META-6", "GK-2"} <= declared


def written_fields(model: type[Model], value: Any, found: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """The fields (model, wire name) that a document uses."""
    for wire_name, field in fields_of(model).items():
        if wire_name in value:
            found.add((model.__name__, wire_name))
            waiting = [(field.shape, value[wire_name])]
            while waiting:
                shape, part = waiting.pop()
                if shape.model is not None:
                    written_fields(shape.model, part, found)
                elif shape.item is not None:
                    parts = part.values() if isinstance(part, dict) else part
                    waiting.extend((shape.item, item) for item in parts)
    return found


def test_complete_documents_use_every_field_and_come_back() -> None:
    used: set[tuple[str, str]] = set()
    for document in yaml.safe_load_all((DATA / "api" / "complete.yaml").read_text()):
        resource = parse(document)
        assert wire(resource, set_only=True) == document
        assert wire(parse(wire(resource))) == wire(resource)
        written_fields(type(resource), document, used)
    models = {model for kind in KINDS.values() for model in models_below(kind)}
    fields = {(model.__name__, wire_name) for model in models for wire_name in fields_of(model)}
    assert fields - used == set()


def test_manifests_parse_and_come_back() -> None:
    count = 0
    for path in sorted((DATA / "manifests").rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document and "modelplane.ai/" in document["apiVersion"]:
                assert wire(parse(document), set_only=True) == document, path
                count += 1
    assert count == 66


def test_defaults_only_where_the_parent_is(minimal: dict[str, Any]) -> None:
    document = minimal["InferenceCluster"]
    document["spec"]["cluster"] = {"source": "EKS", "eks": {"region": "us-west-2"}}
    bare = parse(document)
    assert isinstance(bare, InferenceCluster)
    eks = bare.spec.cluster.eks
    assert eks is not None
    assert (eks.kubernetes_version, eks.credentials) == ("1.36", None)
    document["spec"]["cluster"]["eks"]["credentials"] = {}
    written = wire(parse(document))
    assert written["spec"]["cluster"]["eks"]["credentials"] == {"type": "ClusterProviderConfig", "name": "default"}


def test_serving_without_a_mode_is_unified(minimal: dict[str, Any]) -> None:
    document = minimal["ModelDeployment"]
    document["spec"]["template"]["spec"]["serving"] = {}
    resource = parse(document)
    assert isinstance(resource, ModelDeployment)
    serving = resource.spec.template.spec.serving
    assert serving is not None
    assert serving.mode == "Unified"
    assert wire(resource, set_only=True)["spec"]["template"]["spec"]["serving"] == {}


def test_null_is_absent(minimal: dict[str, Any]) -> None:
    document = minimal["ModelDeployment"]
    document["status"] = None
    document["metadata"]["labels"] = {"a": None}
    document["spec"]["template"]["spec"]["tolerations"] = None
    assert "status" not in wire(parse(document))
    assert wire(parse(document))["metadata"]["labels"] == {}


def test_namespace(minimal: dict[str, Any]) -> None:
    document = minimal["ModelDeployment"]
    del document["metadata"]["namespace"]
    resource = parse(document)
    assert resource.namespace == "default"
    assert resource.ref == Ref("ModelDeployment", "default", "tiny")
    assert wire(resource)["metadata"] == {"name": "tiny", "namespace": "default"}
    assert wire(resource, set_only=True)["metadata"] == {"name": "tiny"}
    assert "namespace" not in document["metadata"]
    assert parse(minimal["InferenceCluster"]).ref == Ref("InferenceCluster", "", "lab")


def test_metadata_of_exported_objects(minimal: dict[str, Any]) -> None:
    document = minimal["ModelReplica"]
    document["metadata"] |= {
        "uid": "9a4e9d3e",
        "resourceVersion": "12",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1", "controller": True}],
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        "finalizers": ["x/y"],
        "labels": {"modelplane.ai/deployment": "tiny"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    document["spec"]["crossplane"] = {"resourceRefs": [{"name": "x"}]}
    document["status"] = {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Available", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        ]
    }
    resource = parse(document)
    assert resource.labels == {"modelplane.ai/deployment": "tiny"}
    assert list(resource.annotations) == ["kubectl.kubernetes.io/last-applied-configuration"]
    assert wire(resource, set_only=True) == document


@pytest.mark.parametrize(
    ("written", "read"),
    [(4, "4"), ("500m", "500m"), ("0.5", "0.5"), ("64Gi", "64Gi"), ("1e3", "1e3"), (".5", ".5")],
)
def test_quantities(minimal: dict[str, Any], change: Any, written: Any, read: str) -> None:
    document = change(minimal["ModelDeployment"], {f"{CONTAINER}.resources": {"requests": {"cpu": written}}})
    spec = wire(parse(document))["spec"]["template"]["spec"]
    container = spec["engines"][0]["members"][0]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": read}}


def test_all_problems_at_once(minimal: dict[str, Any], change: Any) -> None:
    document = change(
        minimal["ModelDeployment"],
        {
            "metadata.name": "A",
            "spec.replicas": "2",
            "spec.templat": {},
            "spec.template.spec.tolerations": [{"operator": "Exists", "value": "x"}, {"effect": "Never"}, 3],
            "spec.template.spec.engines[0].phase": "Decode",
            "spec.template.spec.engines[0].copies": 0,
            "spec.template.spec.engines[0].members[0].role": "Leader",
            "spec.template.metadata": {"labels": {"a b": "c"}},
        },
    )
    paths = [problem.path for problem in problems_of(document)]
    assert sorted(paths) == sorted(
        [
            "metadata.name",
            "spec.replicas",
            "spec.templat",
            'spec.template.metadata.labels["a b"]',
            "spec.template.spec.tolerations[1].effect",
            "spec.template.spec.tolerations[2]",
            "spec.template.spec.engines[0].copies",
            # Rules between fields, though other fields are wrong.
            "spec.template.spec.engines[0].phase",
            "spec.template.spec.engines[0]",
        ]
    )


def test_rules_hold_their_tongue_about_fields_that_are_wrong(minimal: dict[str, Any], change: Any) -> None:
    document = change(minimal["InferenceGateway"], {"spec.traefik": "yes"})
    assert [problem.path for problem in problems_of(document)] == ["spec.traefik"]
    document = change(minimal["InferenceGateway"], {"spec.backend": "traefik", "spec.traefik": None})
    assert [problem.path for problem in problems_of(document)] == ["spec.backend"]


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        ([{"name": "HF_TOKEN", "value": 81726354}], False),
        ([{"name": "DB_PASSWORD", "value": 81726354}], False),
        ([{"name": "apiKey", "value": {"x": 81726354}}], False),
        ([{"value": 81726354}], False),
        ({"HF_TOKEN": 81726354}, False),
        ("HF_TOKEN=81726354", False),
        (["HF_TOKEN=81726354"], False),
        ([{"name": "HF_TOKEN", "value": "a", "x": 81726354}], False),
        ([{"name": "LOG_LEVEL", "value": 81726354}], True),
    ],
)
def test_secrets_are_not_shown(minimal: dict[str, Any], change: Any, env: Any, shown: bool) -> None:
    problems = problems_of(change(minimal["ModelDeployment"], {f"{CONTAINER}.env": env}))
    assert any("81726354" in str(problem) for problem in problems) is shown


@pytest.mark.parametrize(("args", "shown"), [("--api-key=abc", False), ("--port=8000", True)])
def test_arguments_that_speak_of_secrets_are_not_shown(
    minimal: dict[str, Any], change: Any, args: str, shown: bool
) -> None:
    (problem,) = problems_of(change(minimal["ModelDeployment"], {f"{CONTAINER}.args": args}))
    assert problem.message == "must be a list, is text"
    assert (args in str(problem)) is shown


def test_problems_have_an_end(minimal: dict[str, Any], change: Any) -> None:
    problems = problems_of(change(minimal["ModelDeployment"], {f"{CONTAINER}.args": [1] * 50_000}))
    assert len(problems) == 1000


@pytest.mark.parametrize(
    ("document", "path", "says"),
    [
        (None, "", "must be a mapping"),
        ([], "", "must be a mapping"),
        ("kind: ModelCache", "", "must be a mapping"),
        ({}, "kind", "is required"),
        ({"kind": None}, "kind", "is required"),
        ({"kind": ["ModelCache"]}, "kind", "must be the name of a kind"),
        ({"kind": "ModelCaches"}, "kind", "is not a known kind"),
        ({"kind": "x" * 100_000}, "kind", "is not a known kind"),
        ({1: 2, "kind": "ModelCache"}, "", "a key must be text, is a whole number"),
        ({"kind": "ModelCache", "spec": {True: 2}}, "spec", "a key must be text, is true or false"),
        ({"kind": "ModelCache", "spec": {"source": {None}}}, "spec.source", "of type set"),
        ({"kind": "ModelCache", "spec": {"source": datetime.date(2026, 1, 1)}}, "spec.source", "is a date"),
        ({"kind": "ModelCache", "spec": {"source": b"x"}}, "spec.source", "is binary data"),
        ({"kind": "ModelCache", "spec": {"source": "\ud800"}}, "spec.source", "is not valid Unicode"),
        ({"kind": "ModelCache", "spec": {"a\ud800": 1}}, "spec", "a key is not valid Unicode text"),
        ({"kind": "Model\ud800"}, "kind", "must be the name of a kind"),
        ({"kind": "ModelCache", "spec": {"huggingFace": {"sizeGiB": 10**5000}}}, "spec.huggingFace.sizeGiB", "at most"),
        ({"kind": "ModelCache", "spec": {"huggingFace": {"sizeGiB": float("nan")}}}, "spec.huggingFace.sizeGiB", "dec"),
    ],
)
def test_anything_may_come_in(document: Any, path: str, says: str) -> None:
    assert any(problem.path == path and says in problem.message for problem in problems_of(document))
    assert all(len(str(problem)) < 1000 for problem in problems_of(document))


def test_deep_and_wide_documents_are_refused_quickly() -> None:
    deep: Any = {}
    for _ in range(50_000):
        deep = {"a": deep}
    assert any("deeper than" in problem.message for problem in problems_of({"kind": "ModelCache", "spec": deep}))
    wide: Any = ["x"] * 10
    for _ in range(40):
        wide = [wide] * 10
    assert any("more than" in problem.message for problem in problems_of({"kind": "ModelCache", "spec": wide}))


def test_subclasses_of_text_become_plain(minimal: dict[str, Any]) -> None:
    class Tagged(str):
        __slots__ = ("tag",)

        def __str__(self) -> str:
            return "something else"

    document = minimal["ModelEndpoint"]
    document["spec"] = {Tagged("url"): Tagged("https://example.com")}
    written = wire(parse(document))
    assert written["spec"] == {"url": "https://example.com"}
    assert {type(part) for part in (*written["spec"], *written["spec"].values())} == {str}


def test_resources_cannot_be_changed(minimal: dict[str, Any]) -> None:
    resource = parse(minimal["ModelCache"])
    with pytest.raises(ValueError, match="frozen"):
        resource.kind = "Other"


def test_a_bad_key_does_not_hide_other_problems(minimal: dict[str, Any]) -> None:
    document = minimal["ModelCache"]
    document["spec"] = {1: 2, "source": "HuggingFace", "huggingFace": {"repo": "x"}}
    assert [problem.path for problem in problems_of(document)] == ["spec", "spec.huggingFace.sizeGiB"]


def test_an_unknown_field_is_refused_even_when_it_is_null(minimal: dict[str, Any]) -> None:
    document = minimal["InferenceCluster"]
    document["spec"]["nodepools"] = None
    (problem,) = problems_of(document)
    assert (problem.path, problem.hint) == ("spec.nodepools", "Did you mean nodePools?")
