# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet with an object of each composed kind, and random edits of its manifests.

A seed always produces the same edits."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

Object = dict[str, Any]
Manifests = dict[str, Object]
"""Manifests by `Kind namespace/name`."""

API = "modelplane.ai/v1alpha1"
SMALL = 'device.attributes["gpu.nvidia.com"].architecture == "Ada Lovelace"'
LARGE = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("70Gi")) >= 0'
ANY = 'device.driver == "gpu.nvidia.com"'
QUANTITIES = ("12288Mi", "12Gi", "1e9", "0.5Gi", "1536Mi", "2000000k", "12884901888")
CORES = ("4", "0.5", "1000m", "1e3", "1.5", "250m")
ADDRESSES = (
    "http://203.0.113.7:8000",
    "http://[2001:db8::7]:8000",
    "http://models.example.org",
    "https://api.example.com",
)
STORAGE_CLASSES = ("rwx", "faster")
PROBES: tuple[Object, ...] = (
    {"httpGet": {"port": 8000}},
    {"httpGet": {"path": "/live", "port": 8000, "scheme": "HTTPS"}, "periodSeconds": 7},
    {"tcpSocket": {"port": 8000}},
    {"grpc": {"port": 8000}},
    {"exec": {"command": ["true"]}, "timeoutSeconds": 3, "failureThreshold": 9},
)


def first() -> Manifests:
    """Return the manifests before the first edit."""
    manifests: Manifests = {}
    for value in (
        _inference_class("l4", 2, "Ada Lovelace", "23034Mi"),
        _inference_class("h100", 4, "Hopper", "81559Mi"),
        {**_base("InferenceGateway", "default"), "spec": {"backend": "Traefik", "traefik": {"version": "40.2.0"}}},
        cluster("east", "203.0.113.20"),
        cluster("west", "west.gateways.example.com"),
        cache("weights", "ml-team"),
        deployment("chat", "ml-team", [engine("main", standalone(container(**everything())))], replicas=2),
        deployment("cached", "ml-team", [engine("main", standalone(container()))], modelCacheRef={"name": "weights"}),
        deployment("gang", "ml-team", gang(everything())),
        deployment("split", "other-team", pair(), serving={"mode": "PrefillDecode"}),
        endpoint("provider", "ml-team", ADDRESSES[3], credential=True),
        endpoint("plain", "other-team", ADDRESSES[0]),
        service("chat", "ml-team", {"modelplane.ai/deployment": "chat"}, {"provider": "provider"}),
        service("all", "other-team", {"modelplane.ai/deployment": "split"}, {"provider": "plain"}),
    ):
        add(manifests, value)
    return manifests


def write(manifests: Manifests, path: Path) -> None:
    path.write_text("".join(f"---\n{json.dumps(value)}\n" for __, value in sorted(manifests.items())))


def add(manifests: Manifests, value: Object) -> None:
    metadata = value["metadata"]
    manifests[f"{value['kind']} {metadata.get('namespace', '')}/{metadata['name']}"] = value


def _base(kind: str, name: str, namespace: str = "", **labels: str) -> Object:
    metadata: Object = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API, "kind": kind, "metadata": {**metadata, **({"labels": labels} if labels else {})}}


def _inference_class(name: str, count: int, architecture: str, memory: str) -> Object:
    device = {
        "name": "gpu",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": count,
        "attributes": {"architecture": {"string": architecture}},
        "capacity": {"memory": {"value": memory}},
    }
    return {**_base("InferenceClass", name), "spec": {"devices": [device]}}


def cluster(name: str, address: str) -> Object:
    pools = [
        {"name": "small", "className": "l4", "nodeCount": 8},
        {"name": "large", "className": "h100", "nodeCount": 6},
    ]
    existing = {"secretRef": {"name": name}, "cache": {"storageClassName": "rwx"}}
    spec = {"cluster": {"source": "Existing", "existing": existing}, "nodePools": pools}
    return {**_base("InferenceCluster", name), "spec": spec, "status": {"gateway": {"address": address}}}


def cache(name: str, namespace: str) -> Object:
    source = {"repo": "Qwen/Qwen3-8B", "sizeGiB": 2048}
    return {**_base("ModelCache", name, namespace), "spec": {"source": "HuggingFace", "huggingFace": source}}


def deployment(name: str, namespace: str, engines: list[Object], replicas: int = 1, **template: Any) -> Object:
    spec = {"replicas": replicas, "template": {"spec": {"engines": engines, **template}}}
    return {**_base("ModelDeployment", name, namespace), "spec": spec}


def endpoint(name: str, namespace: str, url: str, *, credential: bool = False) -> Object:
    spec: Object = {"url": url}
    if credential:
        spec["credential"] = {"apiKey": {"secretRef": {"name": "key", "key": "key"}}}
    return {**_base("ModelEndpoint", name, namespace, provider=name), "spec": spec}


def service(name: str, namespace: str, *selectors: dict[str, str]) -> Object:
    endpoints = [
        {"name": f"entry-{index}", "selector": {"matchLabels": selector}} for index, selector in enumerate(selectors)
    ]
    return {**_base("ModelService", name, namespace), "spec": {"endpoints": endpoints}}


def everything() -> Object:
    """Return the fields of a container with a default or with several spellings."""
    return {
        "env": [
            {"name": "EMPTY", "value": ""},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token", "optional": True}}},
            {"name": "LEVEL", "valueFrom": {"configMapKeyRef": {"name": "levels", "key": "level"}}},
        ],
        "resources": {
            "requests": {"cpu": "0.5", "memory": "12288Mi", "ephemeral-storage": "1e9"},
            "limits": {"memory": "24576Mi"},
        },
        "livenessProbe": PROBES[0],
        "startupProbe": PROBES[3],
        "lifecycle": {"preStop": {"httpGet": {"port": 8000}}, "postStart": {"exec": {"command": ["true"]}}},
        "securityContext": {"capabilities": {"drop": ["ALL"], "add": []}},
    }


def container(image: str = "vllm/vllm-openai:v0.23.0", **fields: Any) -> Object:
    return {"name": "engine", "image": image, "args": ["--model=m"], **fields}


def standalone(written: Object, selector: str = SMALL, count: int = 1) -> Object:
    return _member("Standalone", written, selector, count)


def _member(role: str, written: Object, selector: str, count: int) -> Object:
    devices = [{"name": "gpu", "count": count, "selectors": [{"cel": selector}]}]
    pod = {"containers": [written], "imagePullSecrets": [{"name": "registry"}]}
    return {"role": role, "nodeSelector": {"devices": devices}, "template": {"spec": pod}}


def engine(name: str, *members: Object, **fields: Any) -> Object:
    return {"name": name, "members": list(members), **fields}


def gang(fields: Object, workers: int = 1) -> list[Object]:
    worker = {**_member("Worker", container(**fields), LARGE, 4), "worker": {"nodes": workers}}
    return [engine("main", _member("Leader", container(**fields), LARGE, 4), worker)]


def pair() -> list[Object]:
    decode = engine("decode", standalone(container(args=["--model=m", "--port=8001"]), SMALL), phase="Decode", copies=2)
    return [engine("prefill", standalone(container(), LARGE, 2), phase="Prefill"), decode]


Edit = Callable[[Random, Manifests], str]


def _of(random: Random, manifests: Manifests, kind: str) -> Object | None:
    names = sorted(name for name in manifests if name.startswith(f"{kind} "))
    return manifests[random.choice(names)] if names else None


def _members(deployment: Object) -> list[Object]:
    return [
        each
        for written in deployment["spec"]["template"]["spec"]["engines"]
        for each in written["members"]
        if each["template"]["spec"]["containers"]
    ]


def _selector(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "ModelDeployment")
    if value is None:
        return ""
    selector = random.choice((SMALL, LARGE, ANY))
    for member in _members(value):
        member["nodeSelector"]["devices"][0]["selectors"] = [{"cel": selector}]
    return f"device selector of {value['metadata']['name']}: {selector}"


def _devices(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "ModelDeployment")
    if value is None:
        return ""
    count = random.choice((1, 2))
    for member in _members(value):
        member["nodeSelector"]["devices"][0]["count"] = count
    return f"devices of {value['metadata']['name']}: {count}"


def _request_name(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "ModelDeployment")
    if value is None:
        return ""
    name = random.choice(("gpu", "accelerator"))
    for member in _members(value):
        member["nodeSelector"]["devices"][0]["name"] = name
    return f"name of the device request of {value['metadata']['name']}: {name}"


def _container(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "ModelDeployment")
    if value is None:
        return ""
    written = random.choice(_members(value))["template"]["spec"]["containers"][0]
    what = random.choice(("image", "resources", "livenessProbe", "startupProbe", "env", "lifecycle"))
    if what == "image":
        written[what] = random.choice(("example.com:5000/vllm", "vllm:latest", f"vllm@sha256:{'a' * 64}", "vllm:v1"))
    elif what == "resources":
        written[what] = {"requests": {"cpu": random.choice(CORES), "memory": random.choice(QUANTITIES)}}
    elif what.endswith("Probe"):
        written[what] = random.choice(PROBES)
    elif what == "env":
        written[what] = random.sample(everything()["env"], random.randint(0, 4))
    else:
        written[what] = random.choice(
            ({"preStop": {"sleep": {"seconds": 5}}}, {"preStop": {"httpGet": {"port": 8000, "path": "/stop"}}})
        )
    return f"{what} of {value['metadata']['name']}: {written[what]}"


def _shape(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "ModelDeployment")
    if value is None:
        return ""
    shape = random.choice(("one", "copies", "gang", "pair"))
    spec = value["spec"]["template"]["spec"]
    spec.pop("serving", None)
    if shape == "pair":
        spec |= {"engines": pair(), "serving": {"mode": "PrefillDecode"}}
    elif shape == "gang":
        spec["engines"] = gang(everything(), random.choice((1, 2)))
    else:
        spec["engines"] = [engine("main", standalone(container()), copies=2 if shape == "copies" else 1)]
    return f"engines of {value['metadata']['name']}: {shape}"


def _replicas(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "ModelDeployment")
    if value is None:
        return ""
    value["spec"]["replicas"] = random.choice((0, 0, 1, 2, 3))
    return f"replicas of {value['metadata']['name']}: {value['spec']['replicas']}"


def _no_replicas(_random: Random, manifests: Manifests) -> str:
    for name, value in manifests.items():
        if name.startswith("ModelDeployment "):
            value["spec"]["replicas"] = 0
    return "no replicas at all"


def _some_replicas(_random: Random, manifests: Manifests) -> str:
    for name, value in manifests.items():
        if name.startswith("ModelDeployment ") and not value["spec"]["replicas"]:
            value["spec"]["replicas"] = 1
    return "replicas of each deployment"


def _only_on(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "ModelDeployment")
    if value is None:
        return ""
    name = random.choice(("east", "west"))
    value["spec"]["template"]["spec"]["clusterSelector"] = {"matchLabels": {"modelplane.ai/cluster": name}}
    return f"{value['metadata']['name']} prefers {name}"


def _toggle(kind: str, *values: Object) -> Edit:
    """Return an edit that deletes a manifest of a kind, or adds one that was deleted."""

    def edit(random: Random, manifests: Manifests) -> str:
        value = random.choice(values)
        namespace = value["metadata"].get("namespace", "")
        name = f"{kind} {namespace}/{value['metadata']['name']}"
        if manifests.pop(name, None):
            return f"{name} is deleted"
        add(manifests, copy.deepcopy(value))
        return f"{name} is added"

    return edit


def _address(random: Random, manifests: Manifests) -> str:
    value = manifests.get(random.choice(("ModelEndpoint ml-team/provider", "ModelEndpoint other-team/plain")))
    if value is None:
        return ""
    value["spec"] = {"url": random.choice(ADDRESSES)}
    if random.random() < 0.3:
        value["spec"]["url"] = ADDRESSES[3]
        value["spec"]["credential"] = {"apiKey": {"secretRef": {"name": "key", "key": "key"}}}
    return f"endpoint {value['metadata']['name']}: {value['spec']}"


def _gateway_address(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "InferenceCluster")
    if value is None:
        return ""
    address = random.choice(("203.0.113.20", "2001:db8::20", "gateway.example.com"))
    value["status"]["gateway"]["address"] = address
    return f"gateway of {value['metadata']['name']}: {address}"


def _cache(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "ModelCache")
    if value is None:
        return ""
    source = value["spec"]["huggingFace"]
    what, choices = random.choice(
        (
            ("repo", ("Qwen/Qwen3-8B", "Qwen/Qwen3-4B")),
            ("sizeGiB", (1024, 2048, 4096)),
            ("layout", ("Folder", "HubCache")),
        )
    )
    source[what] = random.choice(choices)
    return f"{what} of the cache: {source[what]}"


def _storage_class(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "InferenceCluster")
    if value is None:
        return ""
    name = random.choice(STORAGE_CLASSES)
    value["spec"]["cluster"]["existing"]["cache"]["storageClassName"] = name
    return f"storage class of {value['metadata']['name']}: {name}"


def _entries(random: Random, manifests: Manifests) -> str:
    value = _of(random, manifests, "ModelService")
    if value is None:
        return ""
    for entry in value["spec"]["endpoints"]:
        entry["priority"] = random.choice((0, 1))
        entry["weight"] = random.choice((0, 1, 5))
    return f"entries of service {value['metadata']['name']}"


EDITS: tuple[Edit, ...] = (
    *(_selector, _devices, _request_name) * 2,
    *(_container,) * 4,
    *(_shape, _replicas, _only_on) * 2,
    _no_replicas,
    _some_replicas,
    _address,
    _gateway_address,
    _cache,
    _storage_class,
    _entries,
    _toggle("InferenceCluster", cluster("west", "203.0.113.30")),
    _toggle(
        "ModelDeployment",
        deployment("chat", "ml-team", [engine("main", standalone(container(**everything())))], replicas=2),
        deployment("gang", "ml-team", gang({})),
    ),
    _toggle(
        "ModelService",
        service("chat", "ml-team", {"modelplane.ai/deployment": "chat"}, {"provider": "provider"}),
        service("new", "new-team", {"modelplane.ai/deployment": "none"}),
    ),
    _toggle("ModelEndpoint", endpoint("plain", "other-team", ADDRESSES[2]), endpoint("new", "new-team", ADDRESSES[1])),
)


def edit(random: Random, manifests: Manifests) -> str:
    """Edit the manifests, and return a description of the edit."""
    while True:
        if description := random.choice(EDITS)(random, manifests):
            return description
