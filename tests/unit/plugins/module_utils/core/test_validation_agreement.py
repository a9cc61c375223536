# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what must agree: halves of a pair, members of a gang, engines and their ModelCache."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CACHE,
    DEPLOYMENT,
    change,
    fleet,
)

NIXL = '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}'
SGLANG = ["python3", "-m", "sglang.launch_server", "--model-path=m", "--host=0.0.0.0"]
LAUNCH = ["--nnodes=2", "--node-rank=$(MODELPLANE_RANK)", "--master-addr=$(MODELPLANE_LEADER_ADDRESS)"]
DIST = ["--nnodes=2", "--node-rank=$(MODELPLANE_RANK)", "--dist-init-addr=$(MODELPLANE_LEADER_ADDRESS):5000"]


def _with_engines(engines: list[dict], serving: dict | None = None) -> str:  # type: ignore[type-arg]
    document = yaml.safe_load(DEPLOYMENT)
    spec = document["spec"]["template"]["spec"]
    spec["engines"] = engines
    if serving:
        spec["serving"] = serving
    return yaml.safe_dump(document)


def _member(role: str, command: list[str], image: str, **more: object) -> dict:  # type: ignore[type-arg]
    selectors = [{"cel": 'device.driver == "gpu.nvidia.com"'}]
    container = {"name": "engine", "image": image, "command": command, **more}
    return {
        "role": role,
        "nodeSelector": {"devices": [{"name": "gpu", "selectors": selectors}]},
        "template": {"spec": {"containers": [container]}},
    }


def said(text: str, cache: str = CACHE) -> list[str]:
    """Return the problems of a deployment without its parallelism, which its claims of one GPU never fit."""
    found = fleet(deployment=text, cache=cache).problems
    return [str(each).replace('"', "") for each in found if "claim" not in each.message]


def pair(prefill: list[str], decode: list[str], *, image: str = "x", serving: dict | None = None) -> str:  # type: ignore[type-arg]
    halves = [
        {"name": phase.lower(), "phase": phase, "members": [_member("Standalone", command, image)]}
        for phase, command in (("Prefill", prefill), ("Decode", decode))
    ]
    return _with_engines(halves, {"mode": "PrefillDecode", **(serving or {})})


def vllm(*prefill: str, decode: tuple[str, ...] = (), image: str = "x", model: str = "m") -> str:
    return pair(
        ["vllm", "serve", "m", NIXL, *prefill], ["vllm", "serve", model, NIXL, "--port=8001", *decode], image=image
    )


NEW = "vllm/vllm-openai:v0.14.0"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (vllm(model="other"), "engine decode loads other, and engine prefill loads m"),
        (
            vllm("--dtype=float16", decode=("--dtype=bfloat16",)),
            "--dtype=bfloat16, and engine prefill has --dtype=float16",
        ),
        (vllm("--kv-cache-dtype=fp8"), "engine decode has no --kv-cache-dtype, and engine prefill has"),
        (vllm("--kv-cache-dtype=fp8", decode=("--kv-cache-dtype=fp8_e5m2",)), "has --kv-cache-dtype=fp8_e5m2"),
        (vllm("--max-model-len=32k", decode=("--max-model-len=32K",)), "has --max-model-len=32K, and"),
        (vllm("-q", "fp8"), "has no --quantization"),
        (
            vllm("--block-size=32", decode=("--block-size=48",)),
            "has blocks of 48 tokens, and engine prefill of 32",
        ),
        (vllm("--block-size=64", decode=("--block-size=16",), image=NEW), "has blocks of 16 tokens"),
        (vllm("-tp=2", decode=("-tp=3",), image=NEW), "KV caches cannot be divided"),
        (vllm("--served-model-name=a", decode=("--served-model-name=b",)), "has --served-model-name=b"),
        (vllm("--attention-backend=FLASHINFER"), "has no --attention-backend"),
        (
            pair(["vllm", "serve", "m"], ["vllm", "serve", "m", NIXL, "--port=8001"]),
            "engine prefill has no KV connector",
        ),
        (
            vllm('--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'),
            "does not send KV caches",
        ),
        (vllm(decode=('--kv-transfer-config={"kv_connector":"NixlConnector"}',)), "kv_role"),
        (
            vllm('--kv-transfer-config={"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'),
            "has the KV connector NixlConnector, and engine prefill LMCacheConnectorV1",
        ),
        (
            pair(["vllm", "serve", "m", NIXL], [*SGLANG, "--port=8001", "--disaggregation-mode=decode"]),
            "engine decode is SGLang, and engine prefill is vLLM",
        ),
        (
            pair(
                [*SGLANG, "--port=8000", "--disaggregation-mode=decode"],
                [*SGLANG, "--port=8001", "--disaggregation-mode=decode"],
            ),
            "engine prefill has another --disaggregation-mode",
        ),
        (
            pair(
                [*SGLANG, "--port=8000", "--disaggregation-mode=prefill", "--disaggregation-transfer-backend=nixl"],
                [*SGLANG, "--port=8001", "--disaggregation-mode=decode", "--page-size=64"],
            ),
            "has no --disaggregation-transfer-backend",
        ),
    ],
)
def test_halves_that_do_not_agree(text: str, says: str) -> None:
    found = said(text)
    assert any(says.lower() in each.lower() for each in found), found


@pytest.mark.parametrize(
    "text",
    [
        vllm("-tp=2", "--block-size=16", decode=("-tp=4", "--block-size=32"), image=NEW),
        vllm("-tp=4", decode=("-tp=2",), image=NEW),
        vllm("--dtype=half", "--kv-cache-dtype=auto", decode=("--dtype=float16",)),
        vllm("--max-model-len=32k", decode=("--max-model-len=32000",)),
        vllm("--max-model-len=32K", decode=("--max-model-len=32768",)),
        vllm("--max-model-len=1.5k", decode=("--max-model-len=1500",)),
        vllm("--max-model-len=-1", decode=("--max-model-len=auto",)),
        vllm("--kv-cache-dtype=fp8", decode=("--kv-cache-dtype=fp8_e4m3",)),
        pair(
            [*SGLANG, "--port=8000", "--disaggregation-mode=prefill", "--disaggregation-transfer-backend=mooncake"],
            [*SGLANG, "--port=8001", "--disaggregation-mode=decode"],
        ),
        vllm("--dtype=$(TYPE)", decode=("--dtype=bfloat16",)),
        vllm("$(MORE)", decode=("--dtype=bfloat16",)),
        pair(["own", "--dtype=a"], ["own", "--dtype=b"]),
        pair(["sh", "-c", f"vllm serve m '{NIXL}'"], ["sh", "-c", f"vllm serve m '{NIXL}' --port=8001"]),
    ],
)
def test_halves_that_agree_or_are_unknown(text: str) -> None:
    assert said(text) == []


def gang(leader: list[str], worker: list[str], **more: object) -> str:
    members = [_member("Leader", leader, "x", **more), _member("Worker", worker, "x", **more)]
    return _with_engines([{"name": "main", "members": members}])


SERVE = ["vllm", "serve", "m"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            gang([*SGLANG, "--port=8000"], SGLANG),
            "lacks --nnodes, --node-rank, --dist-init-addr: the Leader of engine main",
        ),
        (gang([*SGLANG, "--port=8000", *DIST], SGLANG), "lacks --nnodes, --node-rank, --dist-init-addr: the Worker"),
        (gang([*SGLANG, "--port=8000", *DIST], [*SGLANG, *DIST, "--dtype=half"]), "--dtype=half, and the Leader"),
        (
            gang(SERVE, SERVE),
            "lacks --nnodes, --node-rank, --master-addr: the Leader of engine main starts a separate vLLM",
        ),
        (
            gang([*SERVE, *LAUNCH], [*SERVE, *LAUNCH]),
            "lacks --headless: the Worker of engine main starts an API server",
        ),
        (gang([*SERVE, *LAUNCH, "--headless"], [*SERVE, *LAUNCH, "--headless"]), "the Leader starts no API server"),
        (gang([*SERVE, *LAUNCH, "--nnodes=3"], [*SERVE, *LAUNCH, "--headless"]), "--nnodes=3, and the gang has 2 pods"),
        (gang([*SERVE, *LAUNCH], [*SERVE, *LAUNCH, "--headless", "--node-rank=0"]), "every pod needs its own rank"),
        (
            gang([*SERVE, *LAUNCH, "--master-addr=127.0.0.1"], [*SERVE, *LAUNCH, "--headless"]),
            "--master-addr=127.0.0.1",
        ),
        (
            gang([*SERVE, *LAUNCH, "-tp=8"], [*SERVE, *LAUNCH, "--headless", "-tp=4"]),
            "has --tensor-parallel-size=4, and",
        ),
        (gang([*SERVE, *LAUNCH], ["vllm", "serve", "other", *LAUNCH, "--headless"]), "loads other, and the Leader"),
        (gang([*SERVE, "--distributed-executor-backend=ray"], ["ray", "start"]), "lacks --nnodes"),
    ],
)
def test_members_that_do_not_agree(text: str, says: str) -> None:
    found = said(text)
    assert any(says.lower() in each.lower() for each in found), found


@pytest.mark.parametrize(
    "text",
    [
        gang([*SERVE, *LAUNCH], [*SERVE, *LAUNCH, "--headless"]),
        gang([*SGLANG, "--port=8000", *DIST], [*SGLANG, *DIST]),
        gang(
            [*SERVE, "-dp=2", "--data-parallel-size-local=1", "--data-parallel-address=$(MODELPLANE_LEADER_ADDRESS)"],
            [*SERVE, "-dp=2", "--headless", "--data-parallel-start-rank=1"],
        ),
        gang(
            [*SERVE, "-tp=2", "--distributed-executor-backend=ray"],
            ["ray"],
            env=[{"name": "RAY_ADDRESS", "value": "a"}],
        ),
        gang(["own"], ["own"]),
    ],
)
def test_members_that_agree_or_are_unknown(text: str) -> None:
    assert said(text) == []


HUB = change(CACHE, "sizeGiB: 40", "sizeGiB: 40, layout: HubCache")
OFFLINE = [{"name": "HF_HUB_OFFLINE", "value": "1"}]


def alone(*command: str, **more: object) -> str:
    return _with_engines([{"name": "main", "members": [_member("Standalone", list(command), "x", **more)]}])


@pytest.mark.parametrize(
    ("text", "cache", "says"),
    [
        (
            alone("vllm", "serve", "Qwen/Qwen3-32B", env=OFFLINE),
            HUB,
            "cannot download because of HF_HUB_OFFLINE=1: ModelCache",
        ),
        (alone("vllm", "serve", "--model=Qwen/Qwen3-32B"), HUB, "cannot download because of HF_HUB_OFFLINE=1"),
        (alone("vllm", "serve", "Qwen/Qwen3-8B", env=OFFLINE), CACHE, "has plain files"),
        (
            alone(
                *SGLANG[:3],
                "--model-path=Qwen/a",
                "--host=0.0.0.0",
                "--port=8000",
                env=[{"name": "TRANSFORMERS_OFFLINE", "value": "true"}],
            ),
            CACHE,
            "cannot download because of TRANSFORMERS_OFFLINE=1",
        ),
        (
            alone("nim-serve", env=[*OFFLINE, {"name": "NIM_MODEL_PATH", "value": "Qwen/a"}]),
            CACHE,
            "Write NIM_MODEL_PATH=/mnt/models",
        ),
        (alone("vllm", "serve", "/mnt/models"), HUB, "the layout of Hugging Face's cache"),
        (alone("vllm", "serve", "Qwen/Qwen3-8B", "--revision=a"), HUB, "loads revision a of the model, and ModelCache"),
        (alone("vllm", "serve", "Qwen/Qwen3-8B", "--tokenizer=Qwen/b"), HUB, "loads the tokenizer Qwen/b"),
        (
            alone("vllm", "serve", "a/b", env=[{"name": "HF_HUB_OFFLINE", "value": "0"}]),
            HUB,
            "which every pod downloads",
        ),
    ],
)
def test_engines_that_cannot_use_their_cache(text: str, cache: str, says: str) -> None:
    found = said(text, cache)
    assert any(says.lower() in each.lower() for each in found), found


@pytest.mark.parametrize(
    ("text", "cache"),
    [
        (alone("vllm", "serve", "Qwen/Qwen3-8B"), HUB),
        (alone("vllm", "serve", "$(MODEL)"), HUB),
        (alone("vllm", "serve", "/mnt/models", env=OFFLINE), CACHE),
        (alone("own", "--model=a/b", env=OFFLINE), HUB),
    ],
)
def test_engines_that_use_their_cache(text: str, cache: str) -> None:
    assert said(text, cache) == []
