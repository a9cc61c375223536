# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A deployment's own picker and sidecar: image, flags and configuration, as for pairs of SGLang engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.serving import Picker
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options, overrides
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import PlacedEngine, PlacedMember
from ansible_collections.modelplane.fleet.tests.written import model_replica, replica_objects
from hypothesis import given
from hypothesis import strategies as st

Make = Callable[..., dict[str, Any]]

REQUEST = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1, "selectors": [{"cel": "true"}]}
SGLANG = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: qwen, namespace: ml-team}
spec:
  replicas: 1
  template:
    spec:
      serving:
        mode: PrefillDecode
        picker:
          image: ghcr.io/llm-d/llm-d-router-endpoint-picker:v0.10.0
          args: [--grpc-health-port=9003, --v, "4"]
          config:
            kind: EndpointPickerConfig
            apiVersion: llm-d.ai/v1alpha1
            plugins:
            # SGLang's decode engines read no prompts by themselves, so that every request needs a prefill pod.
            - type: always-disagg-pd-decider
              parameters: null
            - {type: disagg-profile-handler, parameters: {deciders: {prefill: always-disagg-pd-decider}}}
            - {type: prefill-filter}
            - {type: decode-filter}
            - {type: approx-prefix-cache-producer, parameters: {autoTune: false, blockSizeTokens: 64}}
            schedulingProfiles:
            - {name: prefill, plugins: [{pluginRef: prefill-filter}]}
            - {name: decode, plugins: [{pluginRef: decode-filter, weight: 0.5}]}
        sidecar:
          image: ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.10.0
          args: [--kv-connector=sglang, --model-server-port=8200, --port=8000]
      engines:
      - name: prefill
        phase: Prefill
        copies: 2
        members:
        - nodeSelector: {devices: [{name: gpu, selectors: [{cel: "true"}]}]}
          template:
            spec:
              containers:
              - name: engine
                image: lmsysorg/sglang:v0.5.9
                command: [python3, -m, sglang.launch_server]
                args: [--model-path=Qwen/Qwen3-8B, --disaggregation-mode, prefill, --port=8000, --page-size=64]
      - name: decode
        phase: Decode
        members:
        - nodeSelector: {devices: [{name: gpu, selectors: [{cel: "true"}]}]}
          template:
            spec:
              containers:
              - name: engine
                image: lmsysorg/sglang:v0.5.9
                command: [python3, -m, sglang.launch_server]
                args: [--model-path=Qwen/Qwen3-8B, --disaggregation-mode, decode, --port, "8200", --page-size, "64"]
"""


def sglang_replica(**serving: Any) -> dict[str, Any]:
    """The ModelReplica of the manifest above, as it is after it was written to a file and read again.

    Keywords take the place of fields of `serving`; None removes one.
    """
    document = yaml.safe_load(SGLANG)
    written = document["spec"]["template"]["spec"]["serving"] | serving
    document["spec"]["template"]["spec"]["serving"] = {key: value for key, value in written.items() if value}
    deployment = api.wire(api.parse(document), set_only=True)
    placed = [PlacedEngine(name, (PlacedMember("gpu", (REQUEST,)),)) for name in ("prefill", "decode")]
    return api.wire(api.parse(model_replica(deployment, "west", 0, placed)), set_only=True)


def containers(objects: Any, role: str) -> list[dict[str, Any]]:
    (found,) = (
        each["spec"]["template"]["spec"]
        for each in objects
        if each["kind"] == "Deployment" and each["spec"]["template"]["metadata"]["labels"].get("llm-d.ai/role") == role
    )
    return [*found["containers"], *found.get("initContainers", ())]


def test_a_pair_of_sglang_engines() -> None:
    objects = replica_objects(sglang_replica())
    assert [
        each["spec"]["template"]["metadata"]["labels"].get("llm-d.ai/engine-type")
        for each in objects
        if each["kind"] == "Deployment"
    ] == ["sglang", "sglang", None]
    (prefill,) = containers(objects, "prefill")
    decode, sidecar = containers(objects, "decode")
    for engine, mode, port in ((prefill, "prefill", 8000), (decode, "decode", 8200)):
        assert engine["image"] == "lmsysorg/sglang:v0.5.9"
        assert engine["args"][1:3] == ["--disaggregation-mode", mode]
        assert engine["ports"] == [{"containerPort": port}]
        assert engine["readinessProbe"]["httpGet"]["port"] == port
    assert sidecar["image"] == "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.10.0"
    assert sidecar["args"] == [
        "--secure-proxy=false",
        "--prefill-max-retries=2",
        "--kv-connector=sglang",
        "--model-server-port=8200",
        "--port=8000",
    ]
    assert sidecar["readinessProbe"]["httpGet"]["port"] == 8000


def test_the_block_size_comes_from_sglangs_flag(pick: Make) -> None:
    config = yaml.safe_load(pick(replica_objects(sglang_replica(picker=None)), "ConfigMap")["data"]["epp-config.yaml"])
    assert config["plugins"][0]["parameters"]["blockSizeTokens"] == 64


def test_the_pickers_configuration_arrives_unchanged(pick: Make) -> None:
    config = yaml.safe_load(SGLANG)["spec"]["template"]["spec"]["serving"]["picker"]["config"]
    text = pick(replica_objects(sglang_replica()), "ConfigMap")["data"]["epp-config.yaml"]
    assert yaml.safe_load(text) == config
    assert list(yaml.safe_load(text)) == list(config) == ["kind", "apiVersion", "plugins", "schedulingProfiles"]
    assert "parameters: null" in text


def test_an_empty_configuration_is_one(make_replica: Make, pick: Make) -> None:
    objects = replica_objects(make_replica(serving={"picker": {"config": {}}}))
    assert yaml.safe_load(pick(objects, "ConfigMap")["data"]["epp-config.yaml"]) == {}


def test_the_picker_of_a_unified_deployment(make_replica: Make, pick: Make) -> None:
    serving = {"mode": "Unified", "picker": {"image": "picker:2", "args": ["--v=4"]}}
    objects = replica_objects(make_replica(serving=serving), Options(picker_image="picker:1"))
    default = replica_objects(make_replica(), Options(picker_image="picker:1"))
    own, composed = (
        pick(each, "Deployment", "-epp")["spec"]["template"]["spec"]["containers"][0] for each in (objects, default)
    )
    assert own == {**composed, "image": "picker:2", "args": [*composed["args"], "--v=4"]}
    assert pick(objects, "ConfigMap") == pick(default, "ConfigMap")


def test_without_overrides_the_fleets_images_are_used(make_replica: Make, pick: Make, pair: tuple[Any, ...]) -> None:
    serving = {"mode": "PrefillDecode", "picker": {"args": []}, "sidecar": {}}
    options = Options(picker_image="picker:1", sidecar_image="sidecar:1")
    objects = replica_objects(make_replica(*pair, serving=serving), options)
    _engine, sidecar = containers(objects, "decode")
    assert pick(objects, "Deployment", "-epp")["spec"]["template"]["spec"]["containers"][0]["image"] == "picker:1"
    assert sidecar["image"] == "sidecar:1"
    assert sidecar["args"] == [
        "--secure-proxy=false",
        "--kv-connector=nixlv2",
        "--vllm-port=8001",
        "--prefill-max-retries=2",
    ]


COMPOSED = ("--secure-proxy=false", "--kv-connector=nixlv2", "--vllm-port=8001")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([], list(COMPOSED)),
        (["--kv-connector=sglang"], ["--secure-proxy=false", "--vllm-port=8001", "--kv-connector=sglang"]),
        (["--kv-connector", "sglang"], ["--secure-proxy=false", "--vllm-port=8001", "--kv-connector", "sglang"]),
        (["-kv-connector=sglang"], ["--secure-proxy=false", "--vllm-port=8001", "-kv-connector=sglang"]),
        (["--secure-proxy"], ["--kv-connector=nixlv2", "--vllm-port=8001", "--secure-proxy"]),
        (["--kv-connector-x=1"], [*COMPOSED, "--kv-connector-x=1"]),
        (["--v", "vllm-port"], [*COMPOSED, "--v", "vllm-port"]),
        (["--x=--vllm-port=1"], [*COMPOSED, "--x=--vllm-port=1"]),
        (["--new-port=1"], ["--secure-proxy=false", "--kv-connector=nixlv2", "--new-port=1"]),
    ],
)
def test_flags(written: list[str], expected: list[str]) -> None:
    assert overrides.args(Picker.model_validate({"args": written}), COMPOSED, {"new-port": "vllm-port"}) == expected


@given(st.lists(st.text(alphabet="-=ab", max_size=4)))
def test_whatever_is_written_stays_as_it_is(written: list[str]) -> None:
    result = overrides.args(Picker.model_validate({"args": written}), ("--a=1", "--b=2"))
    assert result[len(result) - len(written) :] == written
    assert set(result[: len(result) - len(written)]) <= {"--a=1", "--b=2"}
