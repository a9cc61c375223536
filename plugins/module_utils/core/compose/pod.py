# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The pod of an engine's member: the user's container with its devices, its volumes and its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants, engine_flags
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.claim import claim_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.owner import Owner, user_labels
from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.quantity import Quantity, QuantityError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import child_name

DEFAULT_SHARED_MEMORY = "16Gi"

_CLAIM = "devices"
_NVIDIA_TAINT = "nvidia.com/gpu"
_MEBIBYTE = 2**20


@dataclass(frozen=True)
class Member:
    """A member of an engine of a replica, in its wire form, with what its pods need to know about the rest."""

    owner: Owner
    engine: str
    wire: Mapping[str, Any]
    cache: str = ""

    @property
    def role(self) -> str:
        return str(self.wire.get("role", constants.STANDALONE))

    @property
    def written_container(self) -> Mapping[str, Any]:
        """The container named "engine" as the user wrote it."""
        container: Mapping[str, Any] = self.wire["template"]["spec"]["containers"][0]
        return container

    @property
    def serves(self) -> bool:
        """Whether the member's pods answer the API."""
        return self.role != constants.WORKER


def pod_template(member: Member, managed_labels: Mapping[str, str], env: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The pod template of a member. Managed labels win over the user's; `env` comes before the user's variables."""
    written = member.wire["template"].get("metadata") or {}
    labels = {**user_labels(written.get("labels")), **member.owner.identity_labels(), **managed_labels}
    metadata: dict[str, Any] = {"labels": labels}
    if written.get("annotations"):
        metadata["annotations"] = dict(written["annotations"])
    return {"metadata": metadata, "spec": _pod_spec(member, env)}


def health_probe(port: int) -> dict[str, Any]:
    """The readiness probe of whatever answers the API on a port. Periods are in seconds."""
    return {
        "httpGet": {"path": constants.HEALTH_PATH, "port": port},
        "initialDelaySeconds": 30,
        "periodSeconds": 10,
        "timeoutSeconds": 5,
    }


def shared_memory_volume(name: str, container: Mapping[str, Any]) -> dict[str, Any]:
    """A memory-backed volume, bounded: pages in it count as memory of the pod and could take the node's otherwise."""
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory_limit(container)}}


def shared_memory_limit(container: Mapping[str, Any]) -> str:
    """Half of the container's memory request in whole MiB, or 16Gi. To Kubernetes a lone limit is the request too."""
    resources = container.get("resources") or {}
    for field in ("requests", "limits"):
        written = (resources.get(field) or {}).get("memory")
        if written is None:
            continue
        try:
            requested = Quantity.parse(str(written)).value
        except QuantityError:
            return DEFAULT_SHARED_MEMORY
        return f"{max(1, requested // (2 * _MEBIBYTE))}Mi" if requested > 0 else DEFAULT_SHARED_MEMORY
    return DEFAULT_SHARED_MEMORY


def _pod_spec(member: Member, env: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    written = member.wire["template"]["spec"]
    container = member.written_container
    spec: dict[str, Any] = {
        "nodeSelector": {constants.POOL_LABEL: member.wire["nodePoolName"]},
        "tolerations": _tolerations(member.wire),
    }
    if written.get("imagePullSecrets"):
        spec["imagePullSecrets"] = deepcopy(list(written["imagePullSecrets"]))
    if member.wire.get("deviceRequests"):
        template = claim_name(member.owner, member.engine, member.role)
        spec["resourceClaims"] = [{"name": _CLAIM, "resourceClaimTemplateName": template}]
    spec["volumes"] = [shared_memory_volume("dshm", container)]
    if member.cache:
        claim = child_name("modelcache", member.owner.namespace, member.cache)
        spec["volumes"].append({"name": "model-cache", "persistentVolumeClaim": {"claimName": claim}})
    spec["containers"] = [_container(member, env)]
    return spec


def _tolerations(wire: Mapping[str, Any]) -> list[dict[str, str]]:
    """The GPU taints of the vendors whose device classes are claimed (`gpu.amd.com` -> `amd.com/gpu`), and NVIDIA's."""
    taints = [_NVIDIA_TAINT]
    for request in wire.get("deviceRequests") or ():
        kind, _dot, vendor = request["deviceClassName"].partition(".")
        taint = f"{vendor}/gpu"
        if kind == "gpu" and vendor and taint not in taints:
            taints.append(taint)
    return [{"key": taint, "operator": "Exists", "effect": "NoSchedule"} for taint in taints]


def _container(member: Member, env: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    written = member.written_container
    container: dict[str, Any] = {"name": constants.ENGINE_CONTAINER, "image": written["image"]}
    if written.get("command"):
        container["command"] = list(written["command"])
    args = _args(member)
    if args or member.role == constants.STANDALONE:
        container["args"] = args
    variables = merged_env(env, written.get("env") or ())
    if variables:
        container["env"] = variables
    if member.serves:
        container["ports"] = [{"containerPort": constants.ENGINE_PORT}]
    resources = _resources(member)
    if resources:
        container["resources"] = resources
    container["volumeMounts"] = [{"name": "dshm", "mountPath": "/dev/shm"}]
    if member.cache:
        container["volumeMounts"].append({"name": "model-cache", "mountPath": constants.MODEL_CACHE_PATH})
    if member.serves:
        container["readinessProbe"] = health_probe(constants.ENGINE_PORT)
    return container


def merged_env(first: Sequence[Mapping[str, Any]], last: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Variables of `first` that the user does not set, then the user's as written.

    A name may occur once only: the API server merges `env` by name and refuses duplicates in a server-side apply.
    """
    taken = {variable["name"] for variable in last}
    kept = [variable for variable in first if variable["name"] not in taken]
    return [deepcopy(dict(variable)) for variable in (*kept, *last)]


def _args(member: Member) -> list[str]:
    """The user's args, completed by the mounted model where the image's own entry point starts the server."""
    written = member.written_container
    args = list(written.get("args") or ())
    if member.cache and member.serves and not written.get("command") and not engine_flags.has_model(written):
        args.append(f"--model={constants.MODEL_CACHE_PATH}")
    return args


def _resources(member: Member) -> dict[str, Any]:
    written = member.written_container.get("resources") or {}
    resources: dict[str, Any] = {field: dict(written[field]) for field in ("requests", "limits") if written.get(field)}
    if member.wire.get("deviceRequests"):
        resources["claims"] = [{"name": _CLAIM}]
    return resources
