# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Definition of a cloud: all that the rest of the core, and the inventory, have to know of it. See `registry`."""

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
    """Login at a cluster by its name in the cloud: the key of a connection that has the name of the cloud.

    `options`: the keys below that one, as an Ansible argument spec. `defaults` and `overrides`: variables of the
    inventory, or keys of such variables (`variable.key`), and the option that each stands for. The former lose against
    what is written in a connection, the latter win. `of`: the options by which a cluster is reached, of the spec of its
    kind or of the block of its InferenceCluster, and of its name in the cloud.
    """

    options: Mapping[str, Any]
    of: Callable[[Any, str], dict[str, Any]]
    defaults: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)

    def variables(self, cloud: str) -> tuple[str, ...]:
        """Return the names of all variables of the inventory that the login at a cloud depends on."""
        names = [name.partition(".")[0] for name in (*self.defaults, *self.overrides)]
        return tuple(dict.fromkeys((f"{cloud}_cluster_accounts", *names)))


@dataclass(frozen=True)
class Identity:
    """Identity of its own that each cluster has in the cloud. `type`: that of its Secret in a ServingStack. `suffix`:
    of the name of that Secret."""

    type: str
    suffix: str
    key: str


@dataclass(frozen=True)
class Fabric:
    """Fast network that only nodes of this cloud have. `type`: in manifests. `libraries`: what an image needs for it.
    `pattern`: found in a command that installs them. `images`: which images have them."""

    type: str
    device_class: str
    libraries: str
    pattern: re.Pattern[str]
    images: str


@dataclass(frozen=True)
class Need:
    """Need of a node pool that an account may not meet. `field`: of the pool (wire form) that asks for it. `what`:
    the need in messages. `hint`: what to do before the pool is created."""

    field: str
    what: str
    hint: str


@dataclass(frozen=True)
class Platform:
    """Surroundings of a cluster in the cloud, whoever created it.

    `version_mark`: in the versions of its API servers. `load_balancer_annotations`: what Services of type
    LoadBalancer need so that no request that is silent is cut off. `provider_id`: what those of nodes begin with.
    `load_balancers`: images of controllers for such Services. `one_node`, `many_nodes`: provisioners of volumes that
    one node alone, or several, can mount for writing. `gateway_controllers`: what the controllers of GatewayClasses
    begin with that come with a cluster. `node_label`, `gpu_label`: on all nodes, and on those with GPUs.
    `no_device_plugin`: the label that keeps the cloud's device plugin off a node. `driver_root`: the folder of the
    NVIDIA driver on nodes. `network_device_classes`: DeviceClasses of interfaces for RDMA. `metadata_hosts`,
    `metadata_networks`: names and ranges of the metadata service; `services`: ranges that Services have.
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
    """A cloud in which the fleet creates clusters.

    `name`: in connections, in blocks of manifests, in the variables of its role, which is `<name>_cluster`, and in
    those of playbooks; it is `source` in small letters. `source`: of an InferenceCluster, and provider of an
    InferenceClass. `kind`: of what an InferenceCluster becomes, `<source>Cluster`. `vendor`: in messages.
    `cluster_name`: the name in the cloud, of the namespace and the name of a cluster. `settings`: has the fields that
    the spec and the block of an InferenceCluster share. `node_pool`: a GPU pool, of that of an InferenceCluster, of the
    block of its InferenceClass, and of the sizes of its disks and of the pool. `validation`: of its clusters. `needs`:
    what a node pool (wire form) needs that not every account has, of its manifest alone; empty for pools that are
    usual. `demands`: what the pools of a cluster (wire form) take of the quotas of an account in its region, with the
    nodes of those that exist; raises InvalidResource. `quota_words`: words about these. `machine`: the kind of machine
    that the block of an InferenceClass names. `architecture`: processor architecture, as in kubernetes.io/arch.
    `old_driver`: reason why the GPU driver of a pool might be old, with a hint; empty for other pools.
    `purchase_option`: purchase option of the nodes of a node pool, None for an option with separate prices.
    `storage_class`: StorageClass of the RWX storage of a new cluster. `per_zone`: whether node counts apply to each
    zone. `starts_first_node`: whether its autoscaler starts the first node of an empty pool for a pod that claims
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
        """Return the fields of the spec but for node pools, of the block of an InferenceCluster: those that every cloud
        has, and the settings that differ from their defaults."""
        values = api.wire(block)
        common = ("region", "project", "kubernetesVersion", "credentials")
        common_values = {name: values[name] for name in common if values.get(name)}
        defaults = {camel(name): field.default for name, field in self.settings.model_fields.items()}
        set_here = {name: values[name] for name, default in defaults.items() if values.get(name, default) != default}
        return {**common_values, **set_here}


def node_pool(
    pool: Any, machine: Mapping[str, Any], sizes: Mapping[str, int], gpu: Mapping[str, Any], settings: Any
) -> dict[str, Any]:
    """Return a GPU pool of that of an InferenceCluster. `machine`: its fields for the machines of the cloud. `sizes`:
    those of its disks and of the pool. `settings`: the block that the pool has for the cloud."""
    return {
        "name": pool.name,
        "role": GPU,
        **machine,
        **sizes,
        "gpu": gpu,
        "zones": list(pool.zones or ()),
        **(api.wire(settings, set_only=True) if settings else {}),
    }
