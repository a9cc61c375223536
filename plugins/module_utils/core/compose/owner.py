# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names, namespace and labels that all objects of one replica share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names


def user_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels that a user gave, without reserved keys, as selectors rely on those."""
    return {key: value for key, value in (labels or {}).items() if not key.startswith(names.RESERVED_PREFIX)}


@dataclass(frozen=True)
class Owner:
    """A ModelReplica as its objects on the workload cluster see it.

    `namespace` and `replica` are the ModelReplica's own; `prefix` starts the names of its objects and equals `replica`
    but for names that Kubernetes does not allow for a Service. `deployment` is empty for a replica written by hand.
    """

    namespace: str
    replica: str
    deployment: str
    prefix: str

    @classmethod
    def of(cls, replica: api.ModelReplica) -> Owner:
        """Return the owner that a ModelReplica stands for."""
        deployment = replica.labels.get(names.DEPLOYMENT_LABEL, "")
        return cls(replica.namespace, replica.name, deployment, names.object_prefix(replica.name))

    @property
    def workload_namespace(self) -> str:
        return names.workload_namespace(self.namespace)

    @property
    def pool_name(self) -> str:
        return f"{self.prefix}-pool"

    @property
    def picker_name(self) -> str:
        return f"{self.prefix}-epp"

    def identity_labels(self) -> dict[str, str]:
        """The labels that tell whose a pod is. Pods carry no managed-by label: their controller manages them."""
        labels = {names.NAMESPACE_LABEL: names.label_value(self.namespace)}
        if self.deployment:
            labels[names.DEPLOYMENT_LABEL] = names.label_value(self.deployment)
        labels[names.REPLICA_LABEL] = names.label_value(self.replica)
        return labels

    def labels(self) -> dict[str, str]:
        """The labels of every composed object."""
        return {names.MANAGED_BY_LABEL: names.MANAGED_BY, **self.identity_labels()}

    def metadata(self, name: str) -> dict[str, Any]:
        """The metadata of a namespaced object of this replica."""
        return {"name": name, "namespace": self.workload_namespace, "labels": self.labels()}
