# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An error in one document causes no message about another: each document of good fleets is broken in turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hosts import AllowedHosts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Loaded, Source
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import read_manifests
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CACHE,
    CLASS,
    CLUSTER,
    DEPLOYMENT,
    ENDPOINT,
    FLEET,
    SERVICE,
    change,
    load_text,
    only,
)

QUICKSTART = Path(__file__).parents[5] / "inventories" / "quickstart" / "manifests"
BY_NAME = "modelplane.ai/deployment: qwen"
LITTLE = {
    **FLEET,
    "endpoint": ENDPOINT,
    "by label of an endpoint": change(change(SERVICE, "name: qwen,", "name: b,"), BY_NAME, "provider: saas"),
    "by label of a template": change(change(SERVICE, "name: qwen,", "name: c,"), BY_NAME, "tier: gold"),
    "by place": change(change(SERVICE, "name: qwen,", "name: d,"), BY_NAME, f"{BY_NAME}, modelplane.ai/cluster: west"),
}
SAMPLE = {
    f"{file.stem} {number}": text
    for file in sorted(QUICKSTART.glob("*.yaml"))
    for number, text in enumerate(re.split(r"(?m)^---.*\n", file.read_text(encoding="utf-8")))
    if re.search("(?m)^kind:", text)
}
NAME = re.compile(r"(?m)(?<=metadata: \{)name: [^,}]*,? ?|(?<=^metadata:\n)  name: .*\n")
BREAK: Mapping[str, Callable[[str], str]] = {
    "misspelt field": lambda text: re.sub(r"(?m)^spec:", "specs:", text),
    "unknown field": lambda text: re.sub(r"(?m)^spec: *\n", "spec:\n  colour: red\n", text),
    "open text": lambda text: text + '  note: "open\n',
    "open list": lambda text: "note: [\n" + text,
    "tab": lambda text: re.sub(r"(?m)^spec:", "\tspec:", text),
    "misspelt kind": lambda text: re.sub(r"(?m)^kind: (.*)", r"kind: \1t", text),
    "wrong kind": lambda text: re.sub(r"(?m)^kind: (.*)", "kind: InferenceGateway", text),
    "no kind": lambda text: re.sub(r"(?m)^kind: .*\n", "", text),
    "wrong version": lambda text: re.sub(r"(?m)^(apiVersion: .*)", r"\1x", text),
    "no name": lambda text: NAME.sub("", text),
    "name is a number": lambda text: (
        NAME.sub("name: 1, ", text) if "metadata: {" in text else NAME.sub("  name: 1\n", text)
    ),
}


def read(texts: Mapping[str, str], together: bool) -> Loaded:
    files = {"all": "---\n".join(texts.values())} if together else texts
    sources = [Source(name, text.encode()) for name, text in files.items()]
    return read_manifests([], extra_sources=sources, endpoint_hosts=AllowedHosts(), clouds="error")


@pytest.mark.parametrize("how", BREAK)
@pytest.mark.parametrize(("fleet", "together"), [(LITTLE, False), (SAMPLE, True)], ids=["a file each", "one file"])
def test_an_error_stays_where_it_is(fleet: Mapping[str, str], how: str, together: bool) -> None:
    before = {(problem.message, problem.ref) for problem in read(fleet, together).problems}
    broken = 0
    for number, (name, text) in enumerate(fleet.items(), 1):
        changed = BREAK[how](text)
        if changed == text:
            continue
        problems = read({**fleet, name: changed}, together).problems
        own = [each for each in problems if (each.document == number if together else each.file == name)]
        others = [each for each in problems if each not in own and (each.message, each.ref) not in before]
        assert any(each.severity == "error" for each in own), f"{name}: {how} is no error"
        assert [str(each) for each in others] == [], f"{name}: {how}"
        broken += 1
    assert broken > len(fleet) / 2


def test_a_broken_sample_has_as_many_documents() -> None:
    assert len(SAMPLE) == sum(len(re.findall("(?m)^kind:", file.read_text())) for file in QUICKSTART.glob("*.yaml"))


@pytest.mark.parametrize("broken", ["a: [", "kind: Nothing\napiVersion: modelplane.ai/v1alpha1\nmetadata: {name: x}\n"])
def test_what_is_in_no_document_is_still_missing(broken: str) -> None:
    loaded = load_text(CLASS, change(CLUSTER, "className: l4", "className: l5"), broken)
    (found,) = [problem for problem in loaded.problems if problem.path.endswith("className")]
    assert found.hint == "Existing: l4"


def test_what_may_be_in_a_document_without_a_name_is_not_missing() -> None:
    nameless = "kind: InferenceClass\napiVersion: infrastructure.modelplane.ai/v1alpha1\nmetadata: {}\n"
    loaded = load_text(CLASS, change(CLUSTER, "className: l4", "className: l5"), nameless)
    assert not [problem for problem in loaded.problems if problem.path.endswith("className")]
    other = load_text(change(DEPLOYMENT, "name: weights", "name: w"), CACHE, nameless)
    assert "spec.template.spec.modelCacheRef.name" in [problem.path for problem in other.errors]


def test_a_name_with_errors_is_proposed() -> None:
    loaded = load_text(change(CACHE, "sizeGiB: 40", "sizeGib: 40"), change(DEPLOYMENT, "name: weights", "name: weight"))
    assert only(tuple(each for each in loaded.errors if each.file == "1.yaml")).hint.startswith("Did you mean weights?")
