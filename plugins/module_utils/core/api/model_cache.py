# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelCache: weights staged on the storage of clusters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import Field
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import (
    Column,
    Hidden,
    Model,
    Rule,
    requires,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.engine import ClusterSelector, Layout
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.resource import Resource, Spec, Status


class AuthSecret(Model):
    """Secret of the same namespace with a token."""

    name: str = Field(min_length=1, description="Name of the Secret.")
    key: str = Field(default="HF_TOKEN", description="Key that holds the token.")


class HuggingFace(Model):
    """Weights on Hugging Face."""

    repo: str = Field(min_length=1, description="Repository, such as Qwen/Qwen3-8B.")
    revision: str | None = Field(default=None, description="Branch, tag or commit; absent is the repository's default.")
    auth_secret: Annotated[AuthSecret, Hidden()] | None = Field(
        default=None, description="Token for repositories that need one; it is on clusters only during the download."
    )
    layout: Layout = Field(
        default="Folder",
        description=(
            "Folder: plain files, engines get --model=/mnt/models. "
            "HubCache: Hugging Face's cache layout, engines name the repository."
        ),
    )
    size_gib: int = Field(alias="sizeGiB", ge=1, le=100_000, description="Size of the volume on every cluster, in GiB.")


class ModelCacheSpec(Spec):
    """Weights and the clusters that hold them."""

    RULES: ClassVar[tuple[Rule, ...]] = (requires(("MC-1",), "source", "HuggingFace", "huggingFace"),)

    source: Literal["HuggingFace"] = Field(description="Where the weights come from; its block must be given.")
    hugging_face: HuggingFace | None = Field(default=None, description="Weights on Hugging Face.")
    cluster_selector: ClusterSelector | None = Field(
        default=None, description="Clusters that get the weights; absent is every cluster."
    )


class CacheSummary(Model):
    """Progress on all clusters."""

    ready: str | None = Field(default=None, description="Clusters that have the weights, of those that should: 2/3.")


class CacheOnCluster(Model):
    """Progress on one cluster."""

    name: str = Field(description="Name of the cluster.")
    phase: Literal["Pending", "Hydrating", "Ready", "Failed"] | None = Field(
        default=None, description="Waiting for a volume, downloading, done or failed."
    )
    message: str | None = Field(default=None, description="Details for people.")
    artifact: str | None = Field(default=None, description="What the volume holds: repository@revision@layout.")


class ModelCacheStatus(Status):
    """Observed state of the weights."""

    summary: CacheSummary | None = Field(default=None, description="How far all clusters are.")
    clusters: list[CacheOnCluster] | None = Field(default=None, description="How far each cluster is.")


class ModelCache(Resource):
    """Weights of a model, staged on the storage of clusters."""

    KIND: ClassVar[str] = "ModelCache"
    PLURAL: ClassVar[str] = "modelcaches"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("mc",)
    # `source` is a word, so the repository is beside it and not below it, as the reference implementation has it.
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("SOURCE", ".spec.huggingFace.repo"),
        Column("READY", ".status.summary.ready", description="Clusters that have the weights."),
    )

    spec: ModelCacheSpec = Field(description="Which weights, and where.")
    status: ModelCacheStatus | None = Field(default=None, description="What is known of the weights.")
