# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelCache: model weights in the storage of inference clusters."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import Atomic, Column, Hidden, ListMap, Model, Rule, Violation, Words, requires
from .engine import ClusterSelector, Layout
from .pod_template import EnvVar
from .resource import Resource, Spec, Status

_SECRET = re.compile(r"(?i)(TOKEN|PASSWORD|SECRET|API_?KEY)$")
_LOGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/@\s]*:[^/@\s]*@")


class AuthSecret(Model):
    """Secret with a token in the same namespace."""

    name: str = Field(min_length=1, description="Name of the Secret.")
    key: str = Field(
        default="HF_TOKEN", description="Key of the token in the data of the Secret. Defaults to HF_TOKEN."
    )


RESERVED_VARIABLES = frozenset(
    (
        *("ARTIFACT", "EXCLUDE", "HF_HOME", "HF_HUB_CACHE", "HF_TOKEN", "HOME", "INCLUDE", "LAYOUT", "PACKAGES"),
        *("PATH", "PYTHONPATH", "REPO", "REVISION", "VOLUME"),
    )
)
"""Environment variables of the download that manifests cannot set."""
Pattern = Annotated[
    str,
    Words("must be a pattern for file paths, such as *.safetensors"),
    Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$"),
]


class CABundle(Model):
    """CA certificates in a ConfigMap of the workload namespace on each cluster."""

    name: str = Field(min_length=1, max_length=253, description="Name of the ConfigMap.")
    key: str = Field(
        default="ca.crt",
        min_length=1,
        max_length=253,
        description="Key of the PEM-encoded certificates. Defaults to ca.crt.",
    )


def _variables(source: Any) -> list[Violation]:
    """Return the invalid variables of a download: reserved names, and values with secrets."""
    violations = []
    for index, variable in enumerate(source.env or ()):
        path = ("env", index, "name")
        if variable.name == "HF_TOKEN":
            hint = "Create a Secret with the token, and reference it in authSecret"
            violations.append(Violation(path, "HF_TOKEN is set by authSecret", hint=hint))
        elif variable.name in RESERVED_VARIABLES:
            violations.append(Violation(path, f"{variable.name} is set by the download itself", hint="Remove it"))
        if variable.value and (_LOGIN.match(variable.value) or _SECRET.search(variable.name)):
            what = "is a URL with a password" if _LOGIN.match(variable.value) else f"of {variable.name} is a secret"
            hint = "Create a Secret on the clusters, and reference it in valueFrom.secretKeyRef"
            violations.append(Violation(("env", index, "value"), what, hint=hint))
    return violations


class HuggingFace(Model):
    """Weights on Hugging Face."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("MC-2",),
            message="env cannot set reserved variables of the download",
            cel="!has(self.env) || self.env.all(each, !(each.name in ["
            + ", ".join(f"'{name}'" for name in sorted(RESERVED_VARIABLES))
            + "]))",
            check=_variables,
            schema={
                "properties": {
                    "env": {
                        "items": {"properties": {"name": {"not": {"enum": sorted(RESERVED_VARIABLES)}}}},
                    }
                }
            },
        ),
    )

    repo: str = Field(min_length=1, description="Repository, such as Qwen/Qwen3-8B.")
    revision: str | None = Field(
        default=None, description="Branch, tag or commit. Defaults to the default branch of the repository."
    )
    auth_secret: Annotated[AuthSecret, Hidden()] | None = Field(
        default=None,
        description="Secret with the token for the repository. It is on clusters only during the download. If unset, "
        "the download is anonymous.",
    )
    layout: Layout = Field(
        default="Folder",
        description=(
            "Layout of the weights in the volume. Folder contains plain files, which engines load with "
            "--model=/mnt/models. HubCache has the layout of the Hugging Face cache, from which engines load the "
            "weights by repository name. Defaults to Folder."
        ),
    )
    include: Annotated[list[Pattern], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="Patterns of files to download, such as *Q4_K_M*.gguf. Defaults to all files.",
    )
    exclude: Annotated[list[Pattern], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="Patterns of files to skip, such as original/*. Takes precedence over include.",
    )
    env: Annotated[list[EnvVar], ListMap(("name",))] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="Environment variables of the download, such as HTTPS_PROXY, NO_PROXY, HF_ENDPOINT or HF_XET_*.",
    )
    ca_bundle: CABundle | None = Field(
        default=None,
        description="CA certificates of the download. They replace the certificates of the image. If unset, the "
        "certificates of the image apply.",
    )
    size_gib: int = Field(alias="sizeGiB", ge=1, le=100_000, description="Size of the volume on each cluster in GiB.")


class ModelCacheSpec(Spec):
    """Desired state of the cache."""

    RULES: ClassVar[tuple[Rule, ...]] = (requires(("MC-1",), "source", "HuggingFace", "huggingFace"),)

    source: Literal["HuggingFace"] = Field(
        description="Source of the weights. The field with the name of the source is required."
    )
    hugging_face: HuggingFace | None = Field(
        default=None, description="Weights on Hugging Face. Required for source HuggingFace."
    )
    cluster_selector: ClusterSelector | None = Field(
        default=None, description="Selector of the clusters that store the weights. If unset, selects all clusters."
    )


class CacheSummary(Model):
    """Progress on all clusters."""

    ready: str | None = Field(
        default=None, description="Number of clusters with the weights, and number of selected clusters, such as 2/3."
    )


class CacheOnCluster(Model):
    """Progress on a cluster."""

    name: str = Field(description="Name of the cluster.")
    phase: Literal["Pending", "Hydrating", "Ready", "Failed"] | None = Field(
        default=None,
        description="Phase of the download. Pending waits for a volume, Hydrating downloads the weights, Ready has the "
        "weights, and Failed failed to download.",
    )
    message: str | None = Field(default=None, description="Human-readable details.")
    artifact: str | None = Field(
        default=None, description="Content of the volume: repository@revision@layout, with its file patterns."
    )


class ModelCacheStatus(Status):
    """Observed state of the cache."""

    summary: CacheSummary | None = Field(default=None, description="Progress on all clusters.")
    clusters: list[CacheOnCluster] | None = Field(default=None, description="Progress on each cluster.")


class ModelCache(Resource):
    """Model weights in the storage of inference clusters."""

    KIND: ClassVar[str] = "ModelCache"
    PLURAL: ClassVar[str] = "modelcaches"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("mc",)
    # In Modelplane, the column reads the repository below `source`. Here `source` is a text, so the path differs.
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("SOURCE", ".spec.huggingFace.repo"),
        Column("READY", ".status.summary.ready", description="Number of clusters with the weights."),
    )

    spec: ModelCacheSpec = Field(description="Desired state of the cache.")
    status: ModelCacheStatus | None = Field(default=None, description="Observed state of the cache.")
