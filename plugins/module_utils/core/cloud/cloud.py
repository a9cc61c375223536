# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Definition of a cloud for the rest of the core and for the inventory. See `registry`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import api
from ..accounts import Account
from ..api.base import camel
from ..api.pricing import PurchaseOption
from ..wire import Object
from .pools import GPU
from .quotas import QuotaDemand, QuotaWords
from .validation import Validation

_NONE: tuple[str, ...] = ()


@dataclass(frozen=True)
class Login:
    """Credentials for a cluster by its name in the cloud: the key of a connection that has the name of the cloud.

    `options`: the keys below that key, as an Ansible argument spec. `defaults` and `overrides`: variables of the
    inventory, or keys of such variables (`variable.key`), each with its option. A connection overrides `defaults`, and
    `overrides` override a connection. `of`: the function that returns the options for a cluster. It takes the spec of
    the kind of the cloud, or the block of an InferenceCluster, and the name of the cluster in the cloud.
    """

    options: Mapping[str, Any]
    of: Callable[[Any, str], dict[str, Any]]
    defaults: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)

    def variables(self, cloud: str) -> tuple[str, ...]:
        """Return the names of all inventory variables that the credentials for a cloud depend on."""
        names = [name.partition(".")[0] for name in (*self.defaults, *self.overrides)]
        return tuple(dict.fromkeys((f"{cloud}_cluster_accounts", *names)))


@dataclass(frozen=True)
class Identity:
    """Separate identity of each cluster in the cloud.

    `type`: the type of its Secret in a ServingStack. `suffix`: the suffix of the name of that Secret.
    """

    type: str
    suffix: str
    key: str


@dataclass(frozen=True)
class Fabric:
    """Fast network of nodes that is specific to this cloud.

    `type`: its name in manifests. `libraries`: the libraries that an image needs for it. `pattern`: matches a command
    that installs them. `images`: the images that contain them.
    """

    type: str
    device_class: str
    libraries: str
    pattern: re.Pattern[str]
    images: str


@dataclass(frozen=True)
class Need:
    """Requirement of a node pool that an account might not meet.

    `field`: the field of the pool (wire form) that has the requirement. `what`: the requirement in messages. `hint`:
    the step before the pool is created.
    """

    field: str
    what: str
    hint: str


@dataclass(frozen=True)
class Platform:
    """Properties of all clusters in the cloud, also of clusters that the fleet did not create.

    `version_mark`: a part of the versions of its API servers. `load_balancer_annotations`: annotations of Services of
    type LoadBalancer that keep idle requests from being closed. `provider_id`: the prefix of the provider IDs of nodes.
    `load_balancers`: images of controllers for such Services. `one_node`, `many_nodes`: provisioners of volumes that
    only one node, or several nodes, can mount for writing. `gateway_controllers`: prefixes of the controllers of the
    GatewayClasses that are part of a cluster. `node_label`, `gpu_label`: labels of all nodes, and of nodes with GPUs.
    `no_device_plugin`: the label that excludes a node from the cloud's device plugin. `driver_root`: the directory of
    the NVIDIA driver on nodes. `network_device_classes`: DeviceClasses of interfaces for RDMA. `metadata_hosts`,
    `metadata_networks`: names and ranges of the metadata service. `services`: ranges of Services.
    """

    version_mark: str = ""
    load_balancer_annotations: Mapping[str, str] = field(default_factory=dict)
    provider_id: str = ""
    load_balancers: tuple[str, ...] = _NONE
    one_node: tuple[str, ...] = _NONE
    many_nodes: tuple[str, ...] = _NONE
    gateway_controllers: tuple[str, ...] = _NONE
    node_label: str = ""
    gpu_label: str = ""
    no_device_plugin: str = ""
    driver_root: str = "/"
    network_device_classes: tuple[str, ...] = _NONE
    metadata_hosts: tuple[str, ...] = _NONE
    metadata_networks: tuple[str, ...] = _NONE
    services: tuple[str, ...] = _NONE


@dataclass(frozen=True)
class Cloud:
    """A cloud for clusters that the fleet creates.

    `name`: its name in connections, in blocks of manifests, in the variables of playbooks, and in the variables of its
    role, `<name>_cluster`. It is `source` in lowercase. `source`: the source of an InferenceCluster, and the provider
    of an InferenceClass. `kind`: the kind that an InferenceCluster is converted to, `<source>Cluster`. `vendor`: its
    name in messages. `cluster_name`: the name of a cluster in the cloud, from its namespace and name. `settings`: the
    model with the fields that the spec and the block of an InferenceCluster share. `node_pool`: a GPU pool, from the
    pool of an InferenceCluster, the block of its InferenceClass, and the sizes of its disks and of the pool.
    `validation`: the validation of its clusters.

    `needs`: requirements of a node pool (wire form) that not every account meets, from its manifest only; empty for
    ordinary pools. `demands`: the demand of the pools of a cluster (wire form) on the quotas of an account in its
    region, with the nodes of the existing pools; raises InvalidResource. `quota_words`: words about these quotas.
    `machine`: the machine type in the block of an InferenceClass. `architecture`: processor architecture, as in
    kubernetes.io/arch. `old_driver`: reason why the GPU driver of a pool might be old, with a hint; empty for other
    pools. `purchase_option`: purchase option of the nodes of a node pool, None for an option with separate prices.
    `storage_class`: StorageClass of the RWX storage of a new cluster. `per_zone`: True if node counts apply to each
    zone. `starts_first_node`: True if its autoscaler starts the first node of an empty pool for a pod that claims
    devices.
    """

    name: str
    source: str
    kind: str
    vendor: str
    login: Login
    cluster_name: Callable[[str, str], str]
    settings: type[api.Model]
    node_pool: Callable[[Any, Any, Mapping[str, int]], dict[str, Any]]
    validation: Validation[Any]
    needs: Callable[[Object], list[Need]]
    demands: Callable[[Object, Account, Mapping[str, int | None]], list[QuotaDemand]]
    quota_words: QuotaWords
    machine: Callable[[Any], str]
    architecture: Callable[[str], str]
    old_driver: Callable[[Any], str]
    purchase_option: Callable[[Any], PurchaseOption | None]
    storage_class: str
    platform: Platform
    identity: Identity | None = None
    fabrics: tuple[Fabric, ...] = ()
    per_zone: bool = False
    starts_first_node: bool = True

    def cluster_fields(self, block: Any) -> dict[str, Any]:
        """Return the fields of the spec without node pools, from the block of an InferenceCluster.

        The fields are the common fields of all clouds, and the settings that differ from their defaults.
        """
        values = api.wire(block)
        common = ("region", "project", "kubernetesVersion", "credentials")
        common_values = {name: values[name] for name in common if values.get(name)}
        defaults = {camel(name): field.default for name, field in self.settings.model_fields.items()}
        set_here = {name: values[name] for name, default in defaults.items() if values.get(name, default) != default}
        return {**common_values, **set_here}


def node_pool(
    pool: Any, machine: Mapping[str, Any], sizes: Mapping[str, int], gpu: Mapping[str, Any], settings: Any
) -> dict[str, Any]:
    """Return a GPU pool from the pool of an InferenceCluster.

    `machine`: its fields for the machines of the cloud. `sizes`: the sizes of its disks and of the pool. `settings`:
    the block of the pool for the cloud.
    """
    return {
        "name": pool.name,
        "role": GPU,
        **machine,
        **sizes,
        "gpu": gpu,
        "zones": list(pool.zones or ()),
        **(api.wire(settings, set_only=True) if settings else {}),
    }
