# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names, namespace and labels shared by all objects of one replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import api, names


def user_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Return the labels that a user set, without reserved keys, because selectors rely on reserved labels."""
    return {key: value for key, value in (labels or {}).items() if not key.startswith(names.RESERVED_PREFIX)}


@dataclass(frozen=True)
class Owner:
    """ModelReplica that owns objects on an inference cluster.

    `namespace`, `replica`: namespace and name of the ModelReplica.
    `prefix`: the start of the names of its objects. It equals `replica` unless Kubernetes rejects that name for a
    Service.
    `deployment`: the ModelDeployment, empty for a hand-written replica.
    `digests_claims`: True if the names of its ResourceClaimTemplates contain a digest of their content.
    """

    namespace: str
    replica: str
    deployment: str
    prefix: str
    digests_claims: bool = False

    @classmethod
    def of(cls, replica: api.ModelReplica) -> Owner:
        """Return the owner for a ModelReplica."""
        deployment = replica.labels.get(names.DEPLOYMENT_LABEL, "")
        prefix = names.object_prefix(replica.name)
        return cls(replica.namespace, replica.name, deployment, prefix, replica.spec.claim_names == "Digest")

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
        """Return the ownership labels of a pod. Pods have no managed-by label: their controller manages them."""
        labels = {names.NAMESPACE_LABEL: names.label_value(self.namespace)}
        if self.deployment:
            labels[names.DEPLOYMENT_LABEL] = names.label_value(self.deployment)
        labels[names.REPLICA_LABEL] = names.label_value(self.replica)
        return labels

    def labels(self) -> dict[str, str]:
        """Return the labels of every composed object."""
        return {names.MANAGED_BY_LABEL: names.MANAGED_BY, **self.identity_labels()}

    def metadata(self, name: str) -> dict[str, Any]:
        """Return the metadata of a namespaced object of this replica."""
        return {"name": name, "namespace": self.workload_namespace, "labels": self.labels()}
