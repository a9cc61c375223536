# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names of the objects of a GKECluster, and their owner labels, from its namespace and name.

Names that are fixed in the reference implementation are identical.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from ...names import child_name

LIMIT = 40
"""Maximum length of the name of a GKE cluster, and of its network."""
_ACCOUNT_LIMIT = 30
_LABEL_LIMIT = 63

CLUSTER_LABEL = "modelplane-ai-cluster"
MANAGED_BY_LABEL = "modelplane-ai-managed-by"
FLEET_LABEL = "modelplane-ai-fleet"
OWNER_LABELS = (CLUSTER_LABEL, MANAGED_BY_LABEL, FLEET_LABEL)
"""Keys of the owner labels. Keys in Google Cloud cannot have dots or slashes."""
MANAGED_BY = "modelplane-fleet"


def cluster_name(namespace: str, name: str) -> str:
    """Return the name of the cluster, its network and its subnetwork."""
    return child_name(namespace, name, "gke", limit=LIMIT)


def account_id(namespace: str, name: str) -> str:
    """Return the ID of the service account: the part of its address before the @."""
    return child_name(namespace, name, "gke", limit=_ACCOUNT_LIMIT)


def node_account_id(namespace: str, name: str) -> str:
    """Return the ID of the service account of nodes."""
    return child_name(namespace, name, "nodes", limit=_ACCOUNT_LIMIT)


def email(account: str, project: str) -> str:
    """Return the address of a service account. The ID of a project may have a domain prefix (`example.com:project`)."""
    domain, __, project_name = project.rpartition(":")
    return f"{account}@{project_name}{f'.{domain}' if domain else ''}.iam.gserviceaccount.com"


def key_secret(name: str) -> str:
    """Return the name of the Secret with the key of the service account, in the namespace of the GKECluster."""
    return child_name(name, "sa-key")


def labels(cluster: str, fleet: str) -> dict[str, str]:
    """Return the labels of all Google Cloud objects that are created for the GKE cluster with this name."""
    return {CLUSTER_LABEL: cluster, MANAGED_BY_LABEL: MANAGED_BY, FLEET_LABEL: label_value(fleet)}


def label_value(text: str) -> str:
    """Return a text as the value of a label in Google Cloud. An invalid text is converted and gets a hash suffix."""
    fit = re.sub("[^a-z0-9_-]", "-", text.lower())
    if fit == text and len(text) <= _LABEL_LIMIT:
        return text
    return f"{fit[: _LABEL_LIMIT - 6]}-{sha256(text.encode()).hexdigest()[:5]}"


def description(labels: Mapping[str, str]) -> str:
    """Return the owner labels as the description of an object that does not support labels."""
    return " ".join(f"{key}={labels[key]}" for key in OWNER_LABELS)
