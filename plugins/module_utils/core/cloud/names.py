# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names that are the same for clusters of every cloud."""

from __future__ import annotations

from ..names import child_name


def kubeconfig_secret(name: str) -> str:
    """Return the name of the Secret with the kubeconfig, in the namespace of the cluster's object."""
    return child_name(name, "kubeconfig")
