# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""How to reach an API server, and the way from there to a client."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client


@dataclass(frozen=True)
class SecretRef:
    """A key of a Secret on the control cluster that holds a kubeconfig."""

    namespace: str
    name: str
    key: str = "kubeconfig"


@dataclass(frozen=True)
class Eks:
    """A cluster of Amazon EKS. `endpoint`: URL of the EKS API where it is not the region's public one."""

    cluster: str
    region: str = ""
    profile: str = ""
    role_arn: str = ""
    endpoint: str = ""


@dataclass(frozen=True)
class Gke:
    """A cluster of Google Kubernetes Engine. `endpoint`: URL of the GKE API where it is not the public one."""

    project: str
    location: str
    cluster: str
    credentials_file: str = ""
    endpoint: str = ""


@dataclass(frozen=True)
class Connection:
    """How to reach one cluster: exactly one of kubeconfig, kubeconfig_text, secret, eks, gke, server.

    A `context` alone is one of the kubeconfig that kubectl would use; `standard` means all that kubectl does without
    arguments: $KUBECONFIG, ~/.kube/config, the pod's service account. `timeout` (seconds) bounds one request;
    `retries` is how often one that may be repeated is.
    """

    name: str
    kubeconfig: str = ""
    kubeconfig_text: str = field(default="", repr=False)
    context: str = ""
    secret: SecretRef | None = None
    eks: Eks | None = None
    gke: Gke | None = None
    server: str = ""
    token: str = field(default="", repr=False)
    ca_text: str = ""
    ca_file: str = ""
    proxy: str = field(default="", repr=False)
    tls_server_name: str = ""
    verify: bool = True
    timeout: float = 30.0
    retries: int = 5
    impersonate: str = ""
    standard: bool = False


def connect(connection: Connection, control: Client | None = None, *, write_cache: bool = True) -> Client:
    """A client for the cluster; what needs the network is looked up with the first request.

    `control`: the client of the control cluster, for kubeconfigs in Secrets. `write_cache`: False in check mode.
    """
    raise NotImplementedError(connection, control, write_cache)
