# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Earlier formats become the canonical one; contradictions are refused where they were written."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.conversion import (
    Canonical,
    ConversionError,
    canonical,
    written_path,
)

DATA = Path(__file__).parents[4] / "data"
FORMATS = DATA / "formats"


def manifests() -> list[Any]:
    texts = (path.read_text(encoding="utf-8") for path in sorted((DATA / "manifests").rglob("*.yaml")))
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


def deployment(spec: str) -> dict[str, Any]:
    head = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": "m"}}
    return {**head, "spec": yaml.safe_load(spec)}


def engines(result: Canonical) -> Any:
    return result.document["spec"]["template"]["spec"]["engines"]


def problems_of(document: Any) -> dict[str, str]:
    with pytest.raises(ConversionError) as caught:
        canonical(document)
    return {problem.path: problem.message for problem in caught.value.problems}


def warned(result: Canonical) -> dict[str, str]:
    assert {warning.severity for warning in result.warnings} <= {"warning"}
    return {warning.path: warning.message for warning in result.warnings}


# --- documents that are canonical -----------------------------------------------------------------------------------


def test_published_manifests_are_canonical() -> None:
    documents = manifests()
    assert len(documents) > 40
    for document in documents:
        before = copy.deepcopy(document)
        assert canonical(document) == Canonical(before, (), {})
        assert document == before


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"kind": "Secret", "data": {"a": "b"}},
        {"kind": "ModelDeployment"},
        {"kind": "ModelDeployment", "spec": None},
        {"kind": "ModelDeployment", "spec": ["workers"]},
        {"kind": "ModelDeployment", "spec": {"replicas": 1}},
        {"kind": ["ModelDeployment"], "spec": {"workers": 1}},
        {"kind": "InferenceCluster", "spec": {"nodePools": "none"}},
        {"kind": "InferenceCluster", "spec": {"nodePools": ["none", {"name": "a", "fabric": {"type": "EFA"}}]}},
        {"kind": "EKSCluster", "spec": {"nodePools": [{"name": "a", "fabric": "EFA"}]}},
        {"kind": "GKECluster", "spec": {"project": "p-123456"}},
        {7: 8},
    ],
)
def test_what_is_not_an_earlier_form_is_left_alone(document: dict[Any, Any]) -> None:
    assert canonical(document) == Canonical(document, (), {})


@pytest.mark.parametrize("document", [None, "text", [1], 7])
def test_a_resource_is_a_mapping(document: Any) -> None:
    assert problems_of(document) == {"": "a resource must be a mapping"}


# --- v0.1: engines directly under spec ------------------------------------------------------------------------------

FLAT = (FORMATS / "flat.yaml").read_text(encoding="utf-8")


def test_flat_engines_move_down() -> None:
    written = deployment(FLAT)
    result = canonical(written)
    spec = yaml.safe_load(FLAT)
    assert result.document["spec"] == {
        "replicas": 2,
        "template": {"spec": {name: value for name, value in spec.items() if name != "replicas"}},
    }
    assert written == deployment(FLAT)
    assert warned(result) == {"spec.engines": "is an earlier spelling of spec.template.spec.engines"}
    assert (
        written_path(result.origin, "spec.template.spec.engines[0].members[0].role")
        == "spec.engines[0].members[0].role"
    )
    assert written_path(result.origin, "spec.replicas") == "spec.replicas"


def test_flat_engines_keep_unknown_fields_for_the_validator() -> None:
    assert canonical(deployment(FLAT + "colour: red")).document["spec"]["colour"] == "red"


def test_flat_engines_ignore_nulls() -> None:
    result = canonical(deployment("{replicas: 1, engines: [], template: null, workers: null, serving: null}"))
    assert result.document["spec"] == {"replicas": 1, "template": {"spec": {"engines": []}}}


# --- workers and topology -------------------------------------------------------------------------------------------

SPLIT = (FORMATS / "split.yaml").read_text(encoding="utf-8")

SPLIT_CANONICAL = (FORMATS / "split-canonical.yaml").read_text(encoding="utf-8")


def test_workers_and_prefill_become_two_engines() -> None:
    written = deployment(SPLIT)
    result = canonical(written)
    assert result.document == deployment(SPLIT_CANONICAL)
    assert written == deployment(SPLIT)
    assert not result.warnings


def test_leader_and_worker_share_no_objects() -> None:
    leader, worker = engines(canonical(deployment(SPLIT)))[1]["members"]
    leader["template"]["spec"]["containers"][0]["command"].append("x")
    leader["nodeSelector"]["devices"][0]["count"] = 0
    assert worker["template"]["spec"]["containers"][0]["command"] == ["/start.sh"]
    assert worker["nodeSelector"]["devices"][0]["count"] == 8


def test_decode_beside_prefill_is_the_same() -> None:
    spec = yaml.safe_load(SPLIT)
    spec["decode"] = {"nodeSelector": spec.pop("nodeSelector"), "workers": spec.pop("workers")}
    result = canonical({**deployment("{}"), "spec": spec})
    assert result.document == deployment(SPLIT_CANONICAL)
    path = "spec.template.spec.engines[1].members[1].nodeSelector.devices[0].selectors[0].cel"
    assert written_path(result.origin, path) == "spec.decode.nodeSelector.devices[0].selectors[0].cel"


BASE = (FORMATS / "base.yaml").read_text(encoding="utf-8")


def changed(**changes: Any) -> dict[str, Any]:
    """The BASE deployment with fields set by dotted path (`__` for the dots); `...` removes one."""
    document = deployment(BASE)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = document["spec"]
        for parent in parents:
            place = place[parent]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return document


def test_one_node_becomes_standalone_with_its_args_as_they_are() -> None:
    result = canonical(deployment(BASE))
    assert engines(result) == [
        {
            "name": "main",
            "copies": 1,
            "members": [
                {
                    "role": "Standalone",
                    "nodeSelector": {"devices": [{"name": "gpu", "count": 4, "selectors": [{"cel": "x"}]}]},
                    "template": {"spec": {"containers": [{"name": "engine", "image": "vllm", "args": ["--model=m"]}]}},
                }
            ],
        }
    ]
    assert "serving" not in result.document["spec"]["template"]["spec"]


def test_the_rest_of_a_replica_moves_down() -> None:
    extra = {"clusterSelector": {}, "modelCacheRef": {"name": "c"}, "tolerations": [], "serving": {"mode": "Unified"}}
    spec = canonical(changed(**extra, colour="red")).document["spec"]
    assert set(spec) == {"replicas", "colour", "template"}
    assert {name: value for name, value in spec["template"]["spec"].items() if name != "engines"} == extra


def test_given_count_that_agrees_is_kept() -> None:
    devices = [{"name": "nic", "count": 1}, {"name": "gpu", "count": 4}]
    assert (
        engines(canonical(changed(nodeSelector__devices=devices)))[0]["members"][0]["nodeSelector"]["devices"]
        == devices
    )


def test_the_only_request_is_the_one_for_gpus() -> None:
    result = canonical(changed(nodeSelector__devices=[{"name": "h100", "count": None}]))
    assert engines(result)[0]["members"][0]["nodeSelector"]["devices"] == [{"name": "h100", "count": 4}]


def test_no_selector_asks_for_any_nvidia_gpu() -> None:
    result = canonical(changed(nodeSelector=...))
    assert engines(result)[0]["members"][0]["nodeSelector"]["devices"] == [
        {"name": "gpu", "count": 4, "selectors": [{"cel": 'device.driver == "gpu.nvidia.com"'}]}
    ]
    assert "spec.nodeSelector" in warned(result)


def test_selector_text_over_a_device_becomes_a_request() -> None:
    text = 'device.attributes["gpu.nvidia.com"].productName.matches("capacity[0-9]")'
    result = canonical(changed(nodeSelector={"cel": text}))
    assert engines(result)[0]["members"][0]["nodeSelector"] == {
        "devices": [{"name": "gpu", "count": 4, "selectors": [{"cel": text}]}]
    }
    assert warned(result)["spec.nodeSelector.cel"] == "is an earlier spelling of spec.nodeSelector.devices"
    path = "spec.template.spec.engines[0].members[0].nodeSelector.devices[0].selectors[0].cel"
    assert written_path(result.origin, path) == "spec.nodeSelector.cel"


def test_engine_block_becomes_the_container() -> None:
    block = {"name": "vLLM", "version": "1", "image": "i", "args": ["-x"], "imagePullSecrets": [{"name": "s"}]}
    document = changed(workers__template=...)
    document["spec"]["engine"] = block
    result = canonical(document)
    assert engines(result)[0]["members"][0]["template"] == {
        "spec": {"containers": [{"name": "engine", "image": "i", "args": ["-x"]}], "imagePullSecrets": [{"name": "s"}]}
    }
    assert warned(result)["spec.engine"] == "is an earlier spelling of spec.workers.template"
    template = "spec.template.spec.engines[0].members[0].template"
    assert written_path(result.origin, f"{template}.spec.containers[0].image") == "spec.engine.image"
    assert (
        written_path(result.origin, f"{template}.spec.imagePullSecrets[0].name")
        == "spec.engine.imagePullSecrets[0].name"
    )


def test_bare_template_moves_under_spec_and_keeps_metadata() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "containers": [{"name": "engine"}], "imagePullSecrets": []}
    result = canonical(changed(workers__template=template))
    assert engines(result)[0]["members"][0]["template"] == {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "engine"}], "imagePullSecrets": []},
    }
    path = "spec.template.spec.engines[0].members[0].template.spec.containers[0].image"
    assert written_path(result.origin, path) == "spec.workers.template.containers[0].image"


def test_worker_resources_become_requests() -> None:
    result = canonical(changed(workers__resources={"cpu": 8, "memory": "64Gi"}))
    (container,) = engines(result)[0]["members"][0]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "8", "memory": "64Gi"}}
    path = "spec.template.spec.engines[0].members[0].template.spec.containers[0].resources.requests.cpu"
    assert written_path(result.origin, path) == "spec.workers.resources.cpu"
    assert "spec.workers.resources" in warned(result)


def test_instances_is_an_alias_of_count() -> None:
    result = canonical(changed(workers__topology={"tensor": 4, "instances": 3, "strategy": "Tensor"}))
    assert engines(result)[0]["copies"] == 3
    assert {"spec.workers.topology.instances", "spec.workers.topology.strategy"} <= set(warned(result))
    assert written_path(result.origin, "spec.template.spec.engines[0].copies") == "spec.workers.topology.instances"


def test_data_without_data_local_is_warned_about() -> None:
    result = canonical(changed(workers__topology={"tensor": 1, "data": 8}))
    assert engines(result)[0]["members"][1]["worker"] == {"nodes": 7}
    assert "each of the 8 data-parallel ranks takes a node" in warned(result)["spec.workers.topology.data"]


def test_decode_on_one_node_gets_its_port() -> None:
    spec = yaml.safe_load(SPLIT)
    spec["workers"]["topology"] = {"tensor": 8}
    del spec["workers"]["template"]["containers"][0]["command"]
    assert "port 8001" in warned(canonical({**deployment("{}"), "spec": spec}))["spec.workers.template"]
    spec["workers"]["template"]["containers"][0]["args"] = ["--port", "8001"]
    assert "spec.workers.template" not in warned(canonical({**deployment("{}"), "spec": spec}))


TEMPLATE = {"spec": {"containers": [{"name": "engine", "image": "i"}]}}
WORKERS = {"topology": {"tensor": 1}, "template": TEMPLATE}

REFUSED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "T-1 no topology": (changed(workers__topology=...), {"spec.workers.topology": "is missing"}),
    "T-1 no tensor": (changed(workers__topology={"pipeline": 2}), {"spec.workers.topology.tensor": "is missing"}),
    "T-2 tensor": (changed(workers__topology={"tensor": "4"}), {"spec.workers.topology.tensor": "whole number"}),
    "T-2 count": (changed(workers__count=0), {"spec.workers.count": "at least 1"}),
    "T-3": (
        changed(workers__topology={"tensor": 1, "data": 6, "dataLocal": 4}),
        {"spec.workers.topology.dataLocal": "does not divide"},
    ),
    "T-4": (changed(workers__topology={"tensor": 1, "pipeline": 65}), {"spec.workers.topology": "at most 64 nodes"}),
    "T-5 copies": (changed(workers__count=65), {"spec.workers.count": "at most 64"}),
    "T-5 GPUs": (changed(workers__topology={"tensor": 65}), {"spec.workers.topology": "at most 64 GPUs"}),
    "T-6": (
        changed(nodeSelector__devices=[{"name": "gpu", "count": 8}]),
        {"spec.nodeSelector.devices[0].count": "differs from the 4 GPUs"},
    ),
    "T-6 text": (
        changed(nodeSelector__devices=[{"name": "gpu", "count": "4"}]),
        {"spec.nodeSelector.devices[0].count": "differs from the 4 GPUs"},
    ),
    "T-6 true is not 1": (
        changed(workers__topology={"tensor": 1}, nodeSelector__devices=[{"name": "gpu", "count": True}]),
        {"spec.nodeSelector.devices[0].count": "differs from the 1 GPUs"},
    ),
    "no request named gpu": (
        changed(nodeSelector__devices=[{"name": "a"}, {"name": "b"}]),
        {"spec.nodeSelector.devices": "none of the requests is named gpu"},
    ),
    "T-7 engines beside workers": (
        changed(engines=[]),
        {
            "spec.workers": "cannot be combined with spec.engines",
            "spec.nodeSelector": "cannot be combined with spec.engines",
        },
    ),
    "T-7 template beside workers": (
        changed(template={}),
        {
            "spec.workers": "cannot be combined with spec.template",
            "spec.nodeSelector": "cannot be combined with spec.template",
        },
    ),
    "T-7 template beside engines": (
        deployment("{template: {spec: {}}, engines: [], clusterSelector: {}}"),
        {"spec.engines": "combined with spec.template", "spec.clusterSelector": "combined with spec.template"},
    ),
    "T-7 decode beside workers": (
        changed(decode={"workers": WORKERS}, prefill={"workers": WORKERS, "nodeSelector": {}}),
        {"spec.workers": "combined with spec.decode", "spec.nodeSelector": "combined with spec.decode"},
    ),
    "T-7 decode without prefill": (
        {**deployment("{}"), "spec": {"decode": {"workers": WORKERS}}},
        {"spec.decode": "requires spec.prefill"},
    ),
    "T-8": (
        changed(prefill={}),
        {"spec.prefill.workers": "needs workers", "spec.prefill.nodeSelector": "needs nodeSelector"},
    ),
    "T-9 Unified with prefill": (
        changed(prefill={"workers": WORKERS, "nodeSelector": {}}, serving={"mode": "Unified"}),
        {"spec.serving.mode": "contradicts spec.prefill"},
    ),
    "T-9 PrefillDecode without": (
        changed(serving={"mode": "PrefillDecode"}),
        {"spec.serving.mode": "needs spec.prefill"},
    ),
    "T-10 unknown axis": (
        changed(workers__topology={"tensor": 1, "expert": 2}),
        {"spec.workers.topology.expert": "not a known field"},
    ),
    "T-10 strategy": (
        changed(workers__topology={"tensor": 1, "strategy": "TensorPipeline"}),
        {"spec.workers.topology.strategy": "at least 2"},
    ),
    "T-11 no containers": (changed(workers__template={}), {"spec.workers.template.containers": "no container"}),
    "T-11 other name": (
        changed(workers__template={"spec": {"containers": [{"name": "vllm"}]}}),
        {"spec.workers.template.spec.containers[0].name": "must be engine"},
    ),
    "T-11 two containers": (
        changed(workers__template={"containers": [{"name": "engine"}, {"name": "sidecar"}]}),
        {"spec.workers.template.containers": "there are 2 containers"},
    ),
    "template missing": (changed(workers__template=...), {"spec.workers.template": "template is missing"}),
    "template in two ways": (
        changed(workers__template={"spec": {"containers": [{"name": "engine"}]}, "containers": []}),
        {"spec.workers.template.containers": "cannot be combined with"},
    ),
    "engine beside template": (changed(engine={"image": "i"}), {"spec.engine": "both are given"}),
    "resources in two ways": (
        changed(
            workers__template={"containers": [{"name": "engine", "resources": {}}]}, workers__resources={"cpu": "1"}
        ),
        {"spec.workers.resources": "both are given"},
    ),
    "unknown field of workers": (changed(workers__topologies={}), {"spec.workers.topologies": "not a known field"}),
    "unknown field of prefill": (
        changed(prefill={"workers": WORKERS, "nodeSelector": {}, "modelCacheRef": {}}),
        {"spec.prefill.modelCacheRef": "not a known field"},
    ),
    "selector over flat maps": (
        changed(nodeSelector={"cel": 'capacity["memory"] >= quantity("70Gi")'}),
        {"spec.nodeSelector.cel": "not over one device"},
    ),
    "selector mixes": (
        changed(nodeSelector={"cel": 'device.driver == "a" && attributes["x"] == version("1")'}),
        {"spec.nodeSelector.cel": "not over one device"},
    ),
    "selector in two ways": (
        changed(nodeSelector={"cel": "device.driver == 'a'", "devices": []}),
        {"spec.nodeSelector.cel": "both are given"},
    ),
    "earliest words": (
        deployment("{poolSelector: {}, parallelism: {tensor: 8}, engine: {image: i}}"),
        {
            "spec.poolSelector": "earlier design",
            "spec.parallelism": "earlier design",
            "spec.engine": "has no effect without spec.workers",
        },
    ),
    "earliest words in a block": (
        {**deployment("{}"), "spec": {"decode": {"parallelism": {}}, "prefill": {"poolSelector": {}}}},
        {
            "spec.decode.parallelism": "earlier design",
            "spec.decode.workers": "needs workers",
            "spec.prefill.poolSelector": "earlier design",
            "spec.prefill.workers": "needs workers",
            "spec.prefill.nodeSelector": "needs nodeSelector",
        },
    ),
    "prefill alone": (deployment("prefill: {}"), {"spec.prefill": "has no effect without spec.workers"}),
    "model source": (changed(model={"name": "x"}), {"spec.model": "earlier design"}),
    "everything at once": (
        changed(
            workers__count="2",
            workers__topology={"tensor": 0},
            workers__template=...,
            serving={"mode": "PrefillDecode"},
        ),
        {
            "spec.serving.mode": "needs spec.prefill",
            "spec.workers.topology.tensor": "at least 1",
            "spec.workers.count": "whole number",
            "spec.workers.template": "is missing",
        },
    ),
}


@pytest.mark.parametrize(("document", "expected"), REFUSED.values(), ids=REFUSED)
def test_refuses(document: dict[str, Any], expected: dict[str, str]) -> None:
    found = problems_of(document)
    assert set(found) == set(expected)
    for path, words in expected.items():
        assert words in found[path]


# --- what the models make of it ---------------------------------------------------------------------------------------

CONVERTED = {
    "flat": deployment(FLAT),
    "split": deployment(SPLIT),
    "one node": deployment(BASE),
    "gang with a launch": changed(workers__topology={"tensor": 2, "pipeline": 2, "data": 8, "dataLocal": 4}),
    "resources": changed(workers__resources={"cpu": 8, "memory": "64Gi"}),
    "selector text": changed(nodeSelector={"cel": "device.driver == 'a'"}),
    "no selector": changed(nodeSelector=...),
    "engine block": {
        **deployment("{}"),
        "spec": {"replicas": 1, "workers": {"topology": {"tensor": 1}}, "engine": {"image": "i"}},
    },
}


@pytest.mark.parametrize("document", CONVERTED.values(), ids=CONVERTED)
def test_converted_deployments_are_valid(document: dict[str, Any]) -> None:
    assert api.parse(canonical(document).document).ref.name == "m"


def test_what_the_models_refuse_is_found_where_it_was_written() -> None:
    template = {"containers": [{"name": "engine", "image": "vllm", "arg": []}], "priority": 1}
    document = changed(
        workers__topology={"tensor": 8, "pipeline": 2},
        workers__template=template,
        nodeSelector__devices=[{"name": "gpu", "selectors": []}],
        clusterSelector={"labels": {}},
        colour="red",
    )
    result = canonical(document)
    with pytest.raises(api.InvalidResource) as caught:
        api.parse(result.document)
    assert {written_path(result.origin, problem.path) for problem in caught.value.problems} == {
        "spec.colour",
        "spec.clusterSelector.labels",
        "spec.nodeSelector.devices[0].selectors",
        "spec.workers.template.containers[0].arg",
        "spec.workers.template.priority",
    }


# --- paths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spec.template", "spec"),
        ("spec.template.spec", "spec"),
        ("spec.template.spec.engines[1].name", "spec.engines[1].name"),
        ("spec.template.spec.engines[10]", "spec.engines[10]"),
        ("spec.template.spec.engines[1]", "spec.workers"),
        ('spec.template.spec.engines[1]["a.b"]', 'spec.workers["a.b"]'),
        ("spec.templates", "spec.templates"),
        ("metadata.name", "metadata.name"),
        ("", ""),
    ],
)
def test_written_path_takes_the_longest_prefix_of_whole_components(path: str, expected: str) -> None:
    origin = {"spec.template.spec": "spec", "spec.template": "spec", "spec.template.spec.engines[1]": "spec.workers"}
    if path == "spec.template.spec.engines[1].name":
        origin.pop("spec.template.spec.engines[1]")
    assert written_path(origin, path) == expected
