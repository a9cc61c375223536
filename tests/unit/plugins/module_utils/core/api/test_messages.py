# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Messages about manifests: sentences of one style, which say what to write in place of a wrong value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS, InvalidResource, Model, parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.plain import Loc
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.problems import shape_at
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import Shape, fields_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import sentence

CONTAINER = "spec.template.spec.engines[0].members[0].template.spec.containers[0]"
DEVICE = "spec.template.spec.engines[0].members[0].nodeSelector.devices[0]"
POOL = "spec.nodePools[0]"
KEPT_OUT = "Keep secrets out of manifests: write a mapping with"
BROKEN = """\
a: [
---
\tb: 1
---
x: 1
x: 2
---
- 1
---
kind: ModelDeploymnt
apiVersion: modelplane.ai/v1alpha1
---
kind: ModelDeployment
apiVersion: modelplane.ai/v2
---
kind: ModelDeployment
apiVersion: v1
---
kind: modelcache
apiVersion: modelplane.ai/v1alpha1
---
kind: AKSCluster
apiVersion: infrastructure.modelplane.ai/v1alpha1
---
kind: ModelDeployment
apiVersion: modelplane.ai/v1alpha1
metadata: {name: flat}
spec: {workers: {topology: {tensor: "4", pipelin: 2}, count: 0}}
---
1: 2
---
key: !secret x
---
kind: List
items: 1
"""


def hint(document: dict[str, Any], path: str) -> str:
    """The hint of the only problem of a document, at a path."""
    with pytest.raises(InvalidResource) as caught:
        parse(document)
    (problem,) = [each for each in caught.value.problems if each.path == path]
    return problem.hint


@pytest.mark.parametrize(
    ("of", "path", "value", "write"),
    [
        ("ModelEndpoint", "spec.credential.apiKey", "sk-1", f"{KEPT_OUT} secretRef"),
        ("ModelEndpoint", "spec.credential", "sk-1", f"{KEPT_OUT} apiKey"),
        # It may have a password.
        ("ModelEndpoint", "spec.origin", "https://a.example/", "Remove the slash at its end"),
        ("ModelCache", "spec.huggingFace.sizeGiB", "160Gi", "Write 160"),
        ("ModelCache", "spec.huggingFace.sizeGiB", "160 GiB", "Write 160"),
        ("ModelCache", "spec.huggingFace.sizeGiB", "160gi", "Write 160"),
        ("ModelCache", "spec.huggingFace.sizeGiB", "1.5Ti", "Write 1536"),
        ("ModelCache", "spec.huggingFace.sizeGiB", "160GB", "Write 150"),
        ("ModelCache", "spec.huggingFace.sizeGiB", "512Mi", "Write 1"),
        ("ModelCache", "spec.huggingFace.sizeGiB", "160", "Write it without quotes: 160"),
        ("ModelCache", "spec.huggingFace.sizeGiB", " 160 ", "Write 160"),
        ("ModelCache", "spec.huggingFace.sizeGiB", "1,600", "Write 1600"),
        ("ModelCache", "spec.huggingFace.sizeGiB", 160.0, "Write 160"),
        ("ModelCache", "spec.huggingFace.sizeGiB", [160], "Write 160, without a list"),
        ("ModelCache", "spec.huggingFace.sizeGiB", ["160Gi"], "Write 160, without a list"),
        ("ModelCache", "spec.huggingFace.sizeGiB", "a lot", ""),
        ("ModelCache", "spec.huggingFace.sizeGiB", "500m", ""),
        ("EKSCluster", f"{POOL}.diskSizeGb", "200GB", "Write 200"),
        ("EKSCluster", f"{POOL}.diskSizeGb", "200Gi", "Write 200"),
        ("EKSCluster", f"{POOL}.nodeCount", "3", "Write it without quotes: 3"),
        ("EKSCluster", f"{POOL}.nodeCount", "3Gi", ""),
        ("ModelDeployment", "spec.replicas", "two", ""),
        ("ModelDeployment", f"{DEVICE}.count", ["8"], "Write 8, without a list"),
        (
            "ModelDeployment",
            f"{CONTAINER}.image",
            ["vllm/vllm-openai:v1"],
            'Write "vllm/vllm-openai:v1", without a list',
        ),
        ("ModelDeployment", f"{CONTAINER}.image", ["vllm"], 'Write "vllm", without a list'),
        ("ModelDeployment", f"{CONTAINER}.image", float("inf"), "Put it in quotes"),
        ("ModelDeployment", f"{CONTAINER}.image", True, "Put it in quotes"),
        ("ModelEndpoint", "spec.rewritePath", ["v1"], "It must begin with '/'"),
        ("ModelEndpoint", "spec.rewritePath", True, "It must begin with '/'"),
        ("ModelDeployment", f"{CONTAINER}.args", "--port=8000", "Write it as a list: one line with '- ' for each item"),
        ("ModelDeployment", f"{CONTAINER}.resources", {"limits": {"memory": "64GB"}}, ""),
        ("ModelDeployment", "spec.template.spec.engines[0].members", {"role": "Standalone"}, "Put '- ' before"),
        ("ModelDeployment", "spec.template.spec.engines[0].members[0].role", "STANDALONE", "Write Standalone"),
        ("ModelDeployment", "spec.template.spec.engines[0].members[0].role", ["standalone"], "Write Standalone"),
        ("ModelDeployment", "spec.template.spec.engines[0].members[0].role", "Standalon", "Did you mean Standalone?"),
        ("ModelDeployment", "spec.template.spec.engines[0].name", "Main_Engine", "Write main-engine"),
        ("ModelDeployment", "spec.template.spec.clusterSelector", [{"matchLabels": {"a": "b"}}], "Remove '- '"),
        ("ModelService", "spec.endpoints[0].selector.matchLabels", "tier=gold", "Write {tier: gold}"),
        ("ModelService", "spec.endpoints[0].selector.matchLabels", [{"a": "b"}, {"c": "d"}], "Remove the '- '"),
        ("ModelService", "spec.endpoints[0].weight", "5", "Write it without quotes: 5"),
    ],
)
def test_it_says_what_to_write(
    minimal: dict[str, dict[str, Any]],
    change: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
    of: str,
    path: str,
    value: Any,
    write: str,
) -> None:
    document = change(minimal[of], {path: value})
    if path.endswith(".resources"):
        path, write = f"{path}.limits.memory", "Write 64G"
    found = hint(document, path)
    assert found.startswith(write) if write else found == "", found


@pytest.mark.parametrize(
    ("of", "path", "value", "write"),
    [
        ("ModelDeployment", "spec.preemption", True, ""),
        ("ModelDeployment", "spec.preemption", False, ""),
        ("InferenceCluster", "spec.cluster.source", [True], ""),
        ("ModelReplica", "status.conditions[0].status", True, 'Write "True"'),
        ("ModelReplica", "status.conditions[0].status", False, 'Write "False"'),
    ],
)
def test_only_a_choice_that_yaml_reads_as_a_boolean_needs_quotes(
    minimal: dict[str, dict[str, Any]],
    change: Callable[..., dict[str, Any]],
    of: str,
    path: str,
    value: Any,
    write: str,
) -> None:
    change_of_status = {"status": {"conditions": [{"type": "Ready", "status": value}]}}
    document = change(minimal[of], change_of_status if path.startswith("status.") else {path: value})
    assert hint(document, path) == write


@pytest.mark.parametrize(
    ("of", "path", "description"),
    [
        ("EKSCluster", "spec.region", "AWS region."),
        (
            "EKSCluster",
            f"{POOL}.name",
            "Name of the node pool, and value of the node label modelplane.ai/pool.",
        ),
        (
            "ModelDeployment",
            "spec.template.spec.engines",
            "Engines of the model. Each replica runs all engines.",
        ),
        ("ModelDeployment", f"{CONTAINER}.name", "Name of the container. Must be engine."),
        ("ModelEndpoint", "spec", "Desired state of the endpoint."),
    ],
)
def test_a_required_field_comes_with_its_description(
    minimal: dict[str, dict[str, Any]], change: Callable[..., dict[str, Any]], of: str, path: str, description: str
) -> None:
    assert hint(change(minimal[of], {path: None}), path) == f"Description: {description}"


PROBE = f"{CONTAINER}.livenessProbe"


@pytest.mark.parametrize(
    ("of", "path", "value", "write"),
    [
        ("InferenceClass", 'spec.devices[0].capacity["memory"]', "80Gi", "Write {value: 80Gi}"),
        ("InferenceCluster", "spec.cluster.gke", "us-west1", "Write {region: us-west1}"),
        ("ModelDeployment", "spec.template.spec.modelCacheRef", "weights", "Write {name: weights}"),
        ("ModelDeployment", f"{PROBE}.httpGet", 8000, "Write {port: 8000}"),
        ("ModelDeployment", f"{PROBE}.httpGet", 80000, ""),
        # It may lack its unit.
        ("InferenceClass", 'spec.devices[0].capacity["memory"]', 80, ""),
        ("InferenceClass", 'spec.devices[0].capacity["memory"]', "80", ""),
        # Its only required field is a mapping, or it has several.
        ("InferenceCluster", "spec.cluster.existing", "kubeconfig", ""),
        ("ModelCache", "spec.huggingFace", "Qwen/Qwen3-8B", ""),
    ],
)
def test_a_value_in_place_of_a_mapping_belongs_in_its_required_field(
    minimal: dict[str, dict[str, Any]],
    change: Callable[..., dict[str, Any]],
    of: str,
    path: str,
    value: Any,
    write: str,
) -> None:
    above, _, name = path.rpartition("[") if path.endswith("]") else path.rpartition(".")
    assert hint(change(minimal[of], {above: {name.strip('"]'): value}}), path) == write


@pytest.mark.parametrize(
    ("of", "path", "near"),
    [
        ("InferenceCluster", f"{POOL}.nodes", "nodeCount"),
        ("InferenceCluster", f"{POOL}.count", "nodeCount"),
        ("EKSCluster", f"{POOL}.nodes", "nodeCount"),
        ("EKSCluster", f"{POOL}.type", "instanceType"),
        ("EKSCluster", "spec.version", "kubernetesVersion"),
        ("ModelDeployment", "spec.replica", "replicas"),
        # A misspelled name, and names that differ in more than a word.
        ("EKSCluster", f"{POOL}.zone", "zones"),
        ("EKSCluster", f"{POOL}.instancetype", "instanceType"),
        ("EKSCluster", f"{POOL}.minNodes", "minNodeCount"),
        ("InferenceClass", "spec.devices[0].storageClassName", "deviceClassName"),
    ],
)
def test_an_unknown_field_is_compared_by_words(
    minimal: dict[str, dict[str, Any]], change: Callable[..., dict[str, Any]], of: str, path: str, near: str
) -> None:
    assert hint(change(minimal[of], {path: 1}), path) == f"Did you mean {near}?"


@pytest.mark.parametrize(
    ("value", "write"),
    [
        ("true", "Write it without quotes: true"),
        ("False", "Write it without quotes: false"),
        ("yes", "Write true"),
        ("off", "Write false"),
        (1, "Write true"),
        ([False], "Write false"),
        ("perhaps", ""),
        (2, ""),
    ],
)
def test_it_says_which_boolean(
    minimal: dict[str, dict[str, Any]], change: Callable[..., dict[str, Any]], value: Any, write: str
) -> None:
    path = f"{CONTAINER}.securityContext.readOnlyRootFilesystem"
    assert hint(change(minimal["ModelDeployment"], {path: value}), path) == write


@pytest.mark.parametrize(
    ("value", "write"),
    [
        ("30s", "Write 30"),
        ("5m", "Write 300"),
        ("1h30m", "Write 5400"),
        ("1500ms", ""),
        ("90", "Write it without quotes: 90"),
    ],
)
def test_it_says_how_many_seconds(
    minimal: dict[str, dict[str, Any]], change: Callable[..., dict[str, Any]], value: Any, write: str
) -> None:
    path = "spec.template.spec.engines[0].members[0].template.spec.terminationGracePeriodSeconds"
    found = hint(change(minimal["ModelDeployment"], {path: value}), path)
    assert found.startswith(write) if write else found == ""


def test_secrets_are_in_no_hint(minimal: dict[str, dict[str, Any]], change: Callable[..., dict[str, Any]]) -> None:
    path = f"{CONTAINER}.env"
    document = change(minimal["ModelDeployment"], {path: [{"name": "API_TOKEN", "value": ["hunter2"]}]})
    assert hint(document, f"{path}[0].value") == "Write it without a list"


# --- secrets ---

KEY = "Sekrit_1234"


def about_secrets(kind: type[Model], above: Loc = (), models: frozenset[type[Model]] = frozenset()) -> Iterator[Loc]:
    """The places below spec, outermost first, of fields whose names say that they are about a secret."""
    for name, field in fields_of(kind).items() if kind not in models else ():
        if not above and name != "spec":
            continue
        if re.fullmatch("(?i).*(secret|password|token|apikey|credential).*|auth", name):
            yield (*above, name)
            continue
        shape, loc = field.shape, (*above, name)
        while shape.item is not None:
            shape, loc = shape.item, (*loc, 0)
        if shape.model is not None:
            yield from about_secrets(shape.model, loc, models | {kind})


def misplaced(shape: Shape, key: str) -> Iterator[Any]:
    """Values with a key in place of what a field is for: itself, and each text below it."""
    yield key
    yield [key]
    for name, field in fields_of(shape.model).items() if shape.model is not None else ():
        yield from ({name: below} for below in misplaced(field.shape, key))


def holding(loc: Loc, value: Any) -> Any:
    for part in reversed(loc):
        value = [value] if isinstance(part, int) else {part: value}
    return value


@pytest.mark.parametrize("of", sorted(KINDS))
def test_a_key_in_place_of_its_secret_is_not_repeated(of: str, minimal: dict[str, dict[str, Any]]) -> None:
    model = KINDS[of]
    for loc in about_secrets(model):
        shape = shape_at(model, loc)
        assert shape is not None
        for value in misplaced(shape, KEY):
            with pytest.raises(InvalidResource) as caught:
                parse({**minimal[of], **holding(loc, value)})
            assert KEY not in str(caught.value), loc
            assert value != KEY or f"{loc[-1]}: Must be " in str(caught.value)


def test_fields_about_secrets_are_found() -> None:
    found = {loc[-1] for kind in KINDS.values() for loc in about_secrets(kind)}
    assert found == {
        *(
            "auth",
            "authSecret",
            "credential",
            "credentials",
            "identitySecretRef",
            "imagePullSecrets",
            "secret",
            "secretKeyRef",
        ),
        *("secretRef", "secrets"),
    }


def test_what_has_the_form_of_a_secret_is_not_repeated_anywhere(minimal: dict[str, dict[str, Any]]) -> None:
    for origin in ("https://me:hunter2-x@api.example.com", "sk-0123456789abcdef0123"):
        with pytest.raises(InvalidResource) as caught:
            parse({**minimal["ModelEndpoint"], "spec": {"origin": origin}})
        assert "hunter2" not in str(caught.value)
        assert "0123456789" not in str(caught.value)
        assert "spec.origin: Must be http" in str(caught.value)


# --- sentences ---


# Names of fields keep their small letters: what is before a verb, or has capitals or dots in it.
FIELD = re.compile(r"[a-z]+ (is|are|must|and) |[a-z][A-Za-z]*[A-Z.\[]")


def said(problem: Problem) -> str:
    """A problem as a text, without its place and value."""
    return str(replace(problem, file="", line=None, document=None, ref=None, path="", value=""))


def of_cases(
    cases: list[dict[str, Any]], minimal: dict[str, dict[str, Any]], change: Callable[..., dict[str, Any]]
) -> Iterator[Problem]:
    for case in cases:
        try:
            parse(change(minimal[case["kind"]], case["change"]))
        except InvalidResource as error:
            yield from error.problems


def test_all_are_sentences(
    cases: list[dict[str, Any]], minimal: dict[str, dict[str, Any]], change: Callable[..., dict[str, Any]]
) -> None:
    found = {*of_cases(cases, minimal, change), *load([Source("broken.yaml", BROKEN.encode())]).problems}
    assert len(found) > 200
    for text in map(said, found):
        assert text[0].isupper() or FIELD.match(text), text
        assert text.endswith((".", "?", "…")), text
        assert not re.search(r"[.?]\.(?!\.)|\. \.|\?\?", text.replace("...", "…")), text
        for way in re.finditer("(?i)did you mean", text):
            assert re.match(r"(?<![^ ])Did you mean [^ ?]+\?", text[way.start() :]), text
            assert text[: way.start()].endswith((". ", "? ")), text
        assert not re.search(r"[.?] [a-z]+\s", text.replace("e.g. ", "")), text


def test_a_problem_is_two_sentences_after_its_place() -> None:
    problem = Problem("must be a whole number, is text", "spec.sizeGiB", '"160Gi"', "Write 160")
    placed = problem.at(file="a.yaml", line=3, document=1, ref=Ref("ModelCache", "ai", "x"))
    assert str(placed) == (
        'a.yaml:3, document 1, ModelCache ai/x, spec.sizeGiB: Must be a whole number, is text (got "160Gi"). Write 160.'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("is required", "Is required."),
        ("eks is required when source is EKS", "eks is required when source is EKS."),
        ("a pool needs nodes", "A pool needs nodes."),
        ("eks-us-west is used", "eks-us-west is used."),
        ("dataLocal 3 is more than data 2", "dataLocal 3 is more than data 2."),
        ("Did you mean x?", "Did you mean x?"),
        ("Leave it out.", "Leave it out."),
    ],
)
def test_a_sentence(text: str, expected: str) -> None:
    assert sentence(text) == expected
