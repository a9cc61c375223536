# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of a ModelCache on an inference cluster: the volume for its weights and the Job that fills it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .. import api, names
from ..api.model_cache import HuggingFace
from ..wire import Object, entries, fields, text
from .cache_volume import claim_name
from .hydration import Download, pod_spec
from .options import Options
from .workload_cluster import workload_namespace

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

ARTIFACT_ANNOTATION = "modelplane.ai/artifact"
"""On PersistentVolumeClaims: the artifact that they hold; on hydration Jobs: the artifact that they download."""
SECRET_ANNOTATION = "modelplane.ai/auth-secret"
"""On hydration Jobs: name of the Secret on the control cluster that contains their token."""
DEFAULT_TOKEN_KEY = "HF_TOKEN"
DEFAULT_REVISION = "main"

_FINISHED_JOB_SECONDS = 180
"""Time to live of a finished Job: long enough for a run to observe its success."""
_DIGEST_DIGITS = 10


OPAQUE = "Opaque"
"""Type of Secrets that are of no other type."""


@dataclass(frozen=True)
class SecretCopy:
    """Value of a Secret to copy from the control cluster to an inference cluster when objects are applied.

    The build directory never contains the value.

    `source_*`: location on the control cluster. The other fields are the location on the inference cluster.
    `type`: the type of the copy.
    `labels`: if set, all entries of all Secrets with these labels are copied instead of one entry of one Secret.
    `owner`: labels of the copy, to keep it as long as the objects that require it.
    """

    source_namespace: str
    source_name: str
    source_key: str
    namespace: str
    name: str
    key: str
    type: str = OPAQUE
    labels: tuple[tuple[str, str], ...] = ()
    owner: tuple[tuple[str, str], ...] = ()


def artifact(cache: api.ModelCache) -> str:
    """Return the identity of the artifact in the volume of a ModelCache: `<repo>@<revision or main>@<layout>`, with
    `@include=<pattern>,<pattern>` and `@exclude=…` if it has patterns."""
    source = _source(cache)
    patterns = {"include": source.include, "exclude": source.exclude}
    pattern_suffixes = [f"{key}={','.join(sorted(set(value)))}" for key, value in patterns.items() if value]
    return "@".join((source.repo, source.revision or DEFAULT_REVISION, source.layout, *pattern_suffixes))


def _source(cache: api.ModelCache) -> HuggingFace:
    source = cache.spec.hugging_face
    if source is None:
        raise ValueError(f"ModelCache {cache.namespace}/{cache.name} names no source")
    return source


def volume_id(cache: api.ModelCache) -> str:
    """Return the ID of the volume for the current artifact of a ModelCache: a digest of the artifact.

    The first volume of a cache has no ID: its names equal the names of the reference implementation.
    """
    return sha256(artifact(cache).encode()).hexdigest()[:_DIGEST_DIGITS]


def job_name(namespace: str, cache: str, volume: str = "") -> str:
    """Return the name of the Job that fills a volume of a ModelCache, for clusters where Jobs are observed."""
    return names.child_name("modelcache", namespace, cache, "hydrate", *filter(None, [volume]))


def job_claim(job: Mapping[str, Any]) -> str:
    """Return the name of the claim that a hydration Job of an earlier run fills, "" when the Job mounts none."""
    volumes = entries(job, "spec", "template", "spec", "volumes")
    claims = (text(volume, "persistentVolumeClaim", "claimName") for volume in volumes)
    return next(filter(None, claims), "")


def token_copy_of(job: Mapping[str, Any], namespace: str) -> SecretCopy | None:
    """Return the token that a hydration Job of an earlier run reads, for a Job with an unreadable ModelCache.

    `namespace`: the namespace of the ModelCache.
    """
    secret = text(job, "metadata", "annotations", SECRET_ANNOTATION)
    for container in entries(job, "spec", "template", "spec", "containers")[:1]:
        for variable in entries(container, "env"):
            target = fields(variable, "valueFrom", "secretKeyRef")
            name, key = text(target, "name"), text(target, "key")
            if secret and variable.get("name") == "HF_TOKEN" and name and key:
                return SecretCopy(namespace, secret, key, names.workload_namespace(namespace), name, key)
    return None


def token_copy(cache: api.ModelCache) -> SecretCopy | None:
    """Return the Hugging Face token that the hydration Job reads, None when the ModelCache sets no token."""
    secret = _source(cache).auth_secret
    if not secret:
        return None
    namespace = cache.namespace
    target = names.child_name("modelcache", namespace, cache.name, "auth")
    key = secret.key or DEFAULT_TOKEN_KEY
    return SecretCopy(namespace, secret.name, key, names.workload_namespace(namespace), target, key)


def cache_objects(
    cache: api.ModelCache,
    storage_class: str,
    *,
    hydrate: bool,
    settled: bool,
    options: Options,
    volume: str = "",
    least_gib: int = 0,
) -> tuple[Object, ...]:
    """Return the Namespace and the claim of a ModelCache on one cluster, and with `hydrate` the Job.

    `volume`: the ID of the volume.
    `least_gib`: the size that the claim already has, in GiB. Kubernetes does not shrink a claim, so the request is
    never smaller.

    `settled`: runs observe the Job and then delete it. It gets a TTL, and is replaced when it changes, because the pod
    template of a Job is immutable. Otherwise it has no TTL, because a tool that applies the directory repeatedly would
    start it each time. Its name then contains a digest of its pod template, so that it is never updated in place.
    """
    objects = [workload_namespace(cache.namespace), _claim(cache, storage_class, volume, least_gib)]
    if hydrate:
        objects.append(_job(cache, settled, options, volume))
    return tuple(objects)


def _claim(cache: api.ModelCache, storage_class: str, volume: str, least_gib: int) -> Object:
    size = max(_source(cache).size_gib, least_gib)
    metadata = _metadata(cache, claim_name(cache.namespace, cache.name, volume))
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


def _job(cache: api.ModelCache, settled: bool, options: Options, volume: str) -> Object:
    source = _source(cache)
    env = {
        "REPO": source.repo,
        "REVISION": source.revision or "",
        "LAYOUT": source.layout,
        "ARTIFACT": artifact(cache),
    }
    patterns = {"INCLUDE": source.include, "EXCLUDE": source.exclude}
    env |= {name: "\n".join(sorted(set(value))) for name, value in patterns.items() if value}
    secret = token_copy(cache)
    download = Download(
        env,
        token={"name": secret.name, "key": secret.key} if secret else None,
        variables=[api.wire(variable) for variable in source.env or ()],
        ca_bundle=source.ca_bundle,
    )
    template = {
        "metadata": {"labels": _identity_labels(cache)},
        "spec": pod_spec(claim_name(cache.namespace, cache.name, volume), options.hydration_image, download),
    }
    # A new pod starts only after its predecessor has stopped writing.
    spec: dict[str, Any] = {"backoffLimit": 3, "podReplacementPolicy": "Failed"}
    if settled:
        spec["ttlSecondsAfterFinished"] = _FINISHED_JOB_SECONDS
        name = job_name(cache.namespace, cache.name, volume)
    else:
        digest = sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:_DIGEST_DIGITS]
        name = names.child_name("modelcache", cache.namespace, cache.name, "hydrate", digest)
    spec["template"] = template
    annotations = {ARTIFACT_ANNOTATION: artifact(cache)}
    if secret:
        annotations[SECRET_ANNOTATION] = secret.source_name
    metadata = {**_metadata(cache, name), "annotations": annotations}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _identity_labels(cache: api.ModelCache) -> dict[str, str]:
    return {
        names.NAMESPACE_LABEL: names.label_value(cache.namespace),
        names.CACHE_LABEL: names.label_value(cache.name),
    }


def _metadata(cache: api.ModelCache, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": names.workload_namespace(cache.namespace),
        "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY, **_identity_labels(cache)},
    }
