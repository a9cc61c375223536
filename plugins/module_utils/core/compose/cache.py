# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a ModelCache becomes on a workload cluster: the volume for its weights and the Job that fills it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.cache_volume import FOLDER, claim_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hydration import pod_spec
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.options import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_cluster import workload_namespace
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import entries, fields, text

__all__ = [
    "ARTIFACT_ANNOTATION",
    "SecretCopy",
    "artifact",
    "cache_objects",
    "claim_name",
    "job_claim",
    "job_name",
    "token_copy",
    "token_copy_of",
    "volume_id",
]

Object = dict[str, Any]

ARTIFACT_ANNOTATION = "modelplane.ai/artifact"
"""On claims what they hold, on hydration Jobs what they download, so that nothing is taken for something else."""
SECRET_ANNOTATION = "modelplane.ai/auth-secret"
"""On hydration Jobs: the name of the Secret on the control cluster that their token comes from."""
DEFAULT_TOKEN_KEY = "HF_TOKEN"
DEFAULT_REVISION = "main"

_FINISHED_JOB_SECONDS = 180
"""How long a finished Job stays: longer than it takes to observe it, or its success would be missed."""
_DIGEST_DIGITS = 10


@dataclass(frozen=True)
class SecretCopy:
    """A value that whoever applies copies from the control cluster to a workload cluster; it is never built.

    `source_*` say where it is on the control cluster, the others where it has to be on the workload cluster.
    """

    source_namespace: str
    source_name: str
    source_key: str
    namespace: str
    name: str
    key: str


def artifact(cache: Mapping[str, Any]) -> str:
    """What the volume of a ModelCache (wire form) has to hold: `<repo>@<revision or main>@<layout>`."""
    source = cache["spec"]["huggingFace"]
    return f"{source['repo']}@{source.get('revision') or DEFAULT_REVISION}@{_layout(cache)}"


def volume_id(cache: Mapping[str, Any]) -> str:
    """What tells the volumes of a ModelCache (wire form) apart when its artifact is edited: a digest of the artifact.

    The first volume of a cache has none: its names are those of the reference implementation.
    """
    return sha256(artifact(cache).encode()).hexdigest()[:_DIGEST_DIGITS]


def job_name(namespace: str, cache: str, volume: str = "") -> str:
    """The name of the Job that fills a volume of a ModelCache, where somebody sees its end."""
    return names.child_name("modelcache", namespace, cache, "hydrate", *filter(None, [volume]))


def job_claim(job: Mapping[str, Any]) -> str:
    """The name of the claim that a hydration Job of an earlier run fills, "" where that does not tell."""
    volumes = entries(job, "spec", "template", "spec", "volumes")
    claims = (text(volume, "persistentVolumeClaim", "claimName") for volume in volumes)
    return next(filter(None, claims), "")


def token_copy_of(job: Mapping[str, Any], namespace: str) -> SecretCopy | None:
    """The token that a hydration Job of an earlier run reads, for when its ModelCache of this namespace cannot tell any
    more."""
    secret = text(job, "metadata", "annotations", SECRET_ANNOTATION)
    for container in entries(job, "spec", "template", "spec", "containers")[:1]:
        for variable in entries(container, "env"):
            target = fields(variable, "valueFrom", "secretKeyRef")
            name, key = text(target, "name"), text(target, "key")
            if secret and variable.get("name") == "HF_TOKEN" and name and key:
                return SecretCopy(namespace, secret, key, names.workload_namespace(namespace), name, key)
    return None


def token_copy(cache: Mapping[str, Any]) -> SecretCopy | None:
    """The Hugging Face token that the hydration Job reads, for as long as there is one; None when no token is set."""
    secret = cache["spec"]["huggingFace"].get("authSecret")
    if not secret:
        return None
    namespace, name = _identity(cache)
    key = secret.get("key") or DEFAULT_TOKEN_KEY
    target = names.child_name("modelcache", namespace, name, "auth")
    return SecretCopy(namespace, secret["name"], key, names.workload_namespace(namespace), target, key)


def cache_objects(
    cache: Mapping[str, Any],
    storage_class: str,
    *,
    hydrate: bool,
    settled: bool,
    options: Options,
    volume: str = "",
    least_gib: int = 0,
) -> tuple[Object, ...]:
    """The Namespace and the claim of a valid ModelCache (wire form) on one cluster, and with `hydrate` the Job.

    `volume` is which of the cache's volumes it is. `least_gib`: the size that the claim has already, in GiB, below
    which it is never asked for, as Kubernetes refuses to make a claim smaller.

    `settled`: somebody observes the Job and then takes it away. It may then remove itself some time after its end, and
    has to be replaced by who applies when it changes, as Kubernetes lets nobody change a Job's pods. Otherwise it
    stays for ever, since a tool that applies a folder again and again would start it again and again, and its name
    changes with what it does, so that it never has to be changed.
    """
    namespace, _name = _identity(cache)
    objects = [workload_namespace(namespace), _claim(cache, storage_class, volume, least_gib)]
    if hydrate:
        objects.append(_job(cache, settled, options, volume))
    return tuple(objects)


def _claim(cache: Mapping[str, Any], storage_class: str, volume: str, least_gib: int) -> Object:
    size = max(cache["spec"]["huggingFace"]["sizeGiB"], least_gib)
    metadata = _metadata(cache, claim_name(*_identity(cache), volume))
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**metadata, "annotations": {ARTIFACT_ANNOTATION: artifact(cache)}},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": f"{size}Gi"}},
        },
    }


def _job(cache: Mapping[str, Any], settled: bool, options: Options, volume: str) -> Object:
    source = cache["spec"]["huggingFace"]
    env = {
        "REPO": source["repo"],
        "REVISION": source.get("revision") or "",
        "LAYOUT": _layout(cache),
        "ARTIFACT": artifact(cache),
    }
    secret = token_copy(cache)
    token = {"name": secret.name, "key": secret.key} if secret else None
    template = {
        "metadata": {"labels": _identity_labels(cache)},
        "spec": pod_spec(claim_name(*_identity(cache), volume), options.hydration_image, env, token),
    }
    # Not while a pod before still writes.
    spec: dict[str, Any] = {"backoffLimit": 3, "podReplacementPolicy": "Failed"}
    if settled:
        spec["ttlSecondsAfterFinished"] = _FINISHED_JOB_SECONDS
        name = job_name(*_identity(cache), volume)
    else:
        digest = sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:_DIGEST_DIGITS]
        name = names.child_name("modelcache", *_identity(cache), "hydrate", digest)
    spec["template"] = template
    annotations = {ARTIFACT_ANNOTATION: artifact(cache)}
    if secret:
        annotations[SECRET_ANNOTATION] = secret.source_name
    metadata = {**_metadata(cache, name), "annotations": annotations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _identity(cache: Mapping[str, Any]) -> tuple[str, str]:
    metadata = cache["metadata"]
    return metadata.get("namespace") or "default", metadata["name"]


def _layout(cache: Mapping[str, Any]) -> str:
    return cache["spec"]["huggingFace"].get("layout") or FOLDER


def _identity_labels(cache: Mapping[str, Any]) -> dict[str, str]:
    namespace, name = _identity(cache)
    return {names.NAMESPACE_LABEL: names.label_value(namespace), names.CACHE_LABEL: names.label_value(name)}


def _metadata(cache: Mapping[str, Any], name: str) -> dict[str, Any]:
    namespace, _name = _identity(cache)
    return {
        "name": name,
        "namespace": names.workload_namespace(namespace),
        "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY, **_identity_labels(cache)},
    }
