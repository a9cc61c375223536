# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Pod of an engine's member: the user's container with its devices, volumes and node pools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from .. import api
from ..api.pod_template import Container
from ..devices.quantity import Quantity, QuantityError
from . import constants
from .claim import claim_names
from .member import Member
from .owner import user_labels
from .pod_security import container_security_context, pod_security_context
from .sharing import share_nodes

DEFAULT_SHARED_MEMORY = "16Gi"
SHARED_MEMORY_PATH = "/dev/shm"

_NVIDIA_TAINT = "nvidia.com/gpu"
_MEBIBYTE = 2**20
_CONTAINER_FIELDS = (
    "name",
    "image",
    "command",
    "args",
    "env",
    "ports",
    "resources",
    "securityContext",
    "volumeMounts",
)


def pod_template(member: Member, managed_labels: Mapping[str, str], env: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the pod template of a member. Managed labels override the user's; `env` precedes the user's variables."""
    user_metadata = member.placed.template.metadata
    labels = user_labels(user_metadata.labels if user_metadata else None)
    metadata: dict[str, Any] = {"labels": {**labels, **member.owner.identity_labels(), **managed_labels}}
    if user_metadata and user_metadata.annotations:
        metadata["annotations"] = dict(user_metadata.annotations)
    template = {"metadata": metadata, "spec": _pod_spec(member, env)}
    share_nodes(template, member)
    return template


def has_own_shared_memory(container: Container) -> bool:
    """Return True if a container mounts a volume of the user at /dev/shm."""
    return any(mount.mount_path.rstrip("/") == SHARED_MEMORY_PATH for mount in container.volume_mounts or ())


def shared_memory_volume(name: str, container: Container) -> dict[str, Any]:
    """Return a memory-backed volume with a size limit: its pages count as memory of the pod, and without a limit it
    could use up the node's."""
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": shared_memory_limit(container)}}


def shared_memory_limit(container: Container) -> str:
    """Return half of the container's memory request in whole MiB, or 16Gi. A limit without a request is the request."""
    resources = container.resources
    for amounts in (resources.requests, resources.limits) if resources else ():
        if amounts is None or amounts.memory is None:
            continue
        try:
            requested = Quantity.parse(amounts.memory).value
        except QuantityError:
            return DEFAULT_SHARED_MEMORY
        # A request of 0 is none, while the limit holds.
        if requested > 0:
            return f"{max(1, requested // (2 * _MEBIBYTE))}Mi"
    return DEFAULT_SHARED_MEMORY


def missing_variables(
    defaults: Sequence[Mapping[str, Any]], variables: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the default variables with names that are not in `variables`.

    Names must be unique: the API server merges `env` by name and rejects duplicates in a server-side apply.
    """
    names = {variable["name"] for variable in variables}
    return [deepcopy(dict(variable)) for variable in defaults if variable["name"] not in names]


def gpu_tolerations(device_classes: Iterable[str]) -> list[dict[str, str]]:
    """Return tolerations of NVIDIA's GPU taint and of the taints of the claimed device classes.

    For example, `gpu.amd.com` has the taint `amd.com/gpu`.
    """
    taints = [_NVIDIA_TAINT]
    for name in device_classes:
        kind, _dot, vendor = name.partition(".")
        taint = f"{vendor}/gpu"
        if kind == "gpu" and vendor and taint not in taints:
            taints.append(taint)
    return [{"key": taint, "operator": "Exists", "effect": "NoSchedule"} for taint in taints]


def ordered_container(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container with its fields in the usual order."""
    return {field: container[field] for field in sorted(container, key=_CONTAINER_FIELDS.index)}


def _pod_spec(member: Member, env: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    user_spec = member.placed.template.spec
    classes = [request.device_class_name for request in member.device_requests]
    spec: dict[str, Any] = {**_place(member.pools), "tolerations": gpu_tolerations(classes)}
    spec["automountServiceAccountToken"] = False
    if user_spec.service_account_name:
        spec["serviceAccountName"] = user_spec.service_account_name
    spec["securityContext"] = pod_security_context(member)
    if user_spec.image_pull_secrets:
        spec["imagePullSecrets"] = [api.wire(secret) for secret in user_spec.image_pull_secrets]
    if member.device_requests:
        spec["resourceClaims"] = [
            {"name": name, "resourceClaimTemplateName": template}
            for name, template in zip(member.pod_claim_names, claim_names(member), strict=True)
        ]
    volumes = [] if has_own_shared_memory(member.container) else [shared_memory_volume("dshm", member.container)]
    if member.cache:
        volumes += member.cache.volumes()
    spec["volumes"] = [*volumes, *(api.wire(volume) for volume in user_spec.volumes or ())]
    spec["containers"] = [_container(member, env)]
    return spec


def _place(pools: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a pod's spec that select nodes of these pools."""
    if len(pools) == 1:
        return {"nodeSelector": {constants.POOL_LABEL: pools[0]}}
    on_one_of_them = {"key": constants.POOL_LABEL, "operator": "In", "values": list(pools)}
    terms = [{"matchExpressions": [on_one_of_them]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def _container(member: Member, env: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    user_container = member.container
    container: dict[str, Any] = {"name": constants.ENGINE_CONTAINER, "image": user_container.image}
    if user_container.command:
        container["command"] = list(user_container.command)
    args = _args(member)
    if args or member.role == constants.STANDALONE:
        container["args"] = args
    user_variables = [api.wire(variable) for variable in user_container.env or ()]
    variables = (
        missing_variables([*env, *(member.cache.env() if member.cache else ())], user_variables) + user_variables
    )
    if variables:
        container["env"] = variables
    if member.serves:
        container["ports"] = [{"containerPort": member.port}]
    resources = _resources(member)
    if resources:
        container["resources"] = resources
    container["securityContext"] = container_security_context(member)
    mounts = [] if has_own_shared_memory(user_container) else [{"name": "dshm", "mountPath": SHARED_MEMORY_PATH}]
    if member.cache:
        mounts += member.cache.mounts()
    container["volumeMounts"] = [*mounts, *(api.wire(mount) for mount in user_container.volume_mounts or ())]
    return container


def _args(member: Member) -> list[str]:
    """Return the user's args, with the mounted model added when the entry point of the image starts the server."""
    user_container = member.container
    args = list(user_container.args or ())
    mounted = member.cache is not None and member.cache.is_model
    has_model = any(arg == "--model" or arg.startswith("--model=") for arg in args)
    if mounted and member.serves and not user_container.command and not has_model:
        args.append(f"--model={constants.MODEL_CACHE_PATH}")
    return args


def _resources(member: Member) -> dict[str, Any]:
    requirements = member.container.resources
    amounts = api.wire(requirements) if requirements else {}
    resources: dict[str, Any] = {field: quantities for field, quantities in amounts.items() if quantities}
    if member.device_requests:
        resources["claims"] = [{"name": name} for name in member.pod_claim_names]
    return resources
