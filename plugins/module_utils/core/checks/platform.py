# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Checks of the environment of a cluster: storage for caches, load balancers, and promised devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..cloud.registry import CLOUDS
from ..cloud.volume_sizes import of_provisioner
from ..devices import LEAST_KUBERNETES
from ..status.devices import PublishedDevices, mismatches
from ..text import some
from ..wire import Object, entries, fields, is_true, text
from .finding import Finding, warning
from .images import runs
from .snapshot import NVIDIA, Desired, Snapshot, named, pool_of

_FIELD = "spec.cluster.existing.cache.storageClassName"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_ONE_NODE = (
    "blockvolume.csi.oraclecloud.com",
    "cinder.csi.openstack.org",
    "csi.vultr.com/block",
    "disk.csi.azure.com",
    "dobs.csi.digitalocean.com",
    "docker.io/hostpath",
    "k8s.io/minikube-hostpath",
    "kubernetes.io/azure-disk",
    "kubernetes.io/cinder",
    "local.csi.openebs.io",
    "openebs.io/local",
    "rancher.io/local-path",
    "rbd.csi.ceph.com",
    "topolvm.io",
    *(name for cloud in CLOUDS for name in cloud.platform.one_node),
)
"""Provisioners of file system volumes that only one node can mount for writing (ReadWriteOnce), according to the
documentation of each driver. Ceph's operators put their namespace in front of the name."""
_MANY_NODES = (
    "cephfs.csi.ceph.com",
    "csi.vastdata.com",
    "csi.weka.io",
    "driver.longhorn.io",
    "file.csi.azure.com",
    "kubernetes.io/azure-file",
    "mounted-fs-path.csi.nebius.ai",
    "nfs-subdir-external-provisioner",
    "nfs.csi.k8s.io",
    "pxd.portworx.com",
    "spectrumscale.csi.ibm.com",
    *(name for cloud in CLOUDS for name in cloud.platform.many_nodes),
)
"""Provisioners of volumes that several nodes can mount for writing (ReadWriteMany)."""
_PROVIDER_IDS = (
    "azure://",
    "digitalocean://",
    "exoscale://",
    "hcloud://",
    "ibm://",
    "linode://",
    "nebius://",
    "ocid1.",
    "openstack://",
    "vultr://",
    *(cloud.platform.provider_id for cloud in CLOUDS if cloud.platform.provider_id),
)
"""Beginnings of spec.providerID of nodes where a cloud's controller makes load balancers."""
_BALANCERS = (
    "cloud-controller-manager",
    "klipper-lb",
    "kube-vip",
    "kube-vip-cloud-provider",
    "loxilb",
    "metallb/controller",
    "metallb-rhel9",
    "metallb-controller",
    "openelb-controller",
    "purelb/allocator",
    *(name for cloud in CLOUDS for name in cloud.platform.load_balancers),
)
"""Images of controllers that give addresses to Services of type LoadBalancer."""


def storage(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield problems with the StorageClass for volumes of caches. Many nodes mount such a volume."""
    name = text(desired.cluster, "spec", "cluster", "existing", "cache", "storageClassName")
    if text(desired.cluster, "spec", "cluster", "source") != "Existing" or "StorageClass" in snapshot.unread:
        return
    if not name:
        if desired.caches:
            yield warning(
                "storage",
                _FIELD,
                "it is not set, so caches on this cluster wait",
                "Name a StorageClass for volumes that several nodes mount (ReadWriteMany)",
            )
        return
    storage_object = next(
        (value for value in snapshot.storage_classes if text(value, "metadata", "name") == name), None
    )
    if storage_object is None:
        existing = sorted(text(value, "metadata", "name") for value in snapshot.storage_classes)
        hint = (
            f"Create it, or name one that is there: {some(existing)}" if existing else "Create it; there is none at all"
        )
        yield Finding("storage", _FIELD, f"StorageClass {name} is not there", hint)
        return
    provisioner = text(storage_object, "provisioner")
    where = f"StorageClass {name} ({_FIELD})"
    if provisioner == _NO_PROVISIONER:
        yield Finding(
            "storage",
            where,
            "it makes no volumes (provisioner kubernetes.io/no-provisioner), and each cache needs a new one",
            "Name a class with dynamic provisioning",
        )
    elif _is_one_of(provisioner, _ONE_NODE):
        yield Finding(
            "storage",
            where,
            f"volumes of its provisioner {provisioner} can be mounted on one node only, and caches are read on many",
            "Name a class for ReadWriteMany, such as one of EFS, Filestore, CephFS or NFS",
        )
    elif not _is_one_of(provisioner, _MANY_NODES):
        yield warning(
            "storage",
            where,
            f"it is not known here whether volumes of its provisioner {provisioner or '(none)'} can be mounted on "
            "several nodes (ReadWriteMany)",
            "Read its documentation; nothing has to be done if they can",
        )
    class_minimum = of_provisioner(provisioner, fields(storage_object, "parameters"))
    small = [size for size in desired.cache_sizes if class_minimum and size < class_minimum.gib]
    if class_minimum and small:
        yield warning(
            "storage",
            where,
            f"its volumes have {class_minimum.gib} GiB at least ({class_minimum.storage}), and cost as much; "
            f"the smallest cache of the fleet asks for {min(small)} GiB",
            "Nothing has to be done; for less cost, use storage with smaller volumes",
        )


def _is_one_of(provisioner: str, provisioners: tuple[str, ...]) -> bool:
    return any(provisioner == name or provisioner.endswith((f".{name}", f"/{name}")) for name in provisioners)


def load_balancers(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield a warning if no Service of type LoadBalancer has an address, or if no controller for them is found.

    This is not an error, because the absence of a controller cannot be proved.
    """
    managed = [entry["key"] for entry in desired.managed]
    if "gateway" not in managed or desired.routed or "Service" in snapshot.unread:
        return
    addressed = [value for value in snapshot.services if entries(value, "status", "loadBalancer", "ingress")]
    if addressed:
        return
    waiting = [named(value) for value in snapshot.services]
    seen = any(text(node, "spec", "providerID").startswith(_PROVIDER_IDS) for node in snapshot.nodes) or any(
        runs(value, _BALANCERS) for value in snapshot.workloads
    )
    hint = (
        "The gateway waits for an address, and without one no replica is placed here. Install a load balancer such as "
        "MetalLB or kube-vip, with addresses that the control cluster reaches"
    )
    if waiting:
        yield warning("load-balancer", some(sorted(waiting)), "no Service of type LoadBalancer has an address", hint)
    elif not seen:
        yield warning("load-balancer", "cluster", "no controller for Services of type LoadBalancer is to be seen", hint)


def devices(snapshot: Snapshot, desired: Desired) -> Iterator[Finding]:
    """Yield published devices that differ from their classes, and missing DeviceClasses."""
    publishing = {text(value, "spec", "driver") for value in snapshot.slices}
    # What no driver publishes yet cannot be compared.
    promises = [
        replace(promise, devices=tuple(device for device in promise.devices if device.driver in publishing))
        for promise in desired.expected.promises
    ]
    ready: dict[str, list[Object]] = {}
    for node in snapshot.nodes:
        if is_true(node, "Ready"):
            ready.setdefault(pool_of(node), []).append(node)
    for mismatch in mismatches(promises, ready, PublishedDevices(snapshot.slices, snapshot.taint_rules)):
        yield warning(
            "devices",
            f"Node {some(mismatch.nodes)} (pool {mismatch.pool})",
            mismatch.message,
            "Correct the InferenceClass or the label of the node: new replicas do not use these devices",
        )
    if "DeviceClass" in snapshot.unread or not snapshot.devices or desired.problems:
        return
    class_names = {text(value, "metadata", "name") for value in snapshot.device_classes}
    installed = {NVIDIA} if any(entry["key"] == "dra-driver" for entry in desired.managed) else set()
    for name in desired.expected.device_classes:
        if name not in class_names | installed:
            yield warning(
                "devices",
                f"DeviceClass {name}",
                "InferenceClasses of the pools name it, it is not there, and the serving stack does not install it",
                "Install the DRA driver that defines it",
            )


def kubernetes(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a problem if pods cannot claim devices at all."""
    version = ".".join(map(str, snapshot.version))
    if snapshot.version < LEAST_KUBERNETES or not snapshot.devices:
        serves = "serves" if snapshot.devices else "does not serve"
        yield Finding(
            "kubernetes",
            "API server",
            f"it is Kubernetes {version} and {serves} resource.k8s.io/v1",
            "Pods claim devices with Kubernetes 1.34 and newer: upgrade the cluster"
            if snapshot.version < LEAST_KUBERNETES
            else "Let the API server serve it (--runtime-config), which is the default of Kubernetes",
        )


def unread(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a warning about the resources that the run could not read."""
    if snapshot.unread:
        why, *__ = snapshot.unread.values()
        yield warning(
            "permissions",
            "credential",
            f"it may not read {some(sorted(snapshot.unread))}, so nothing that depends on it was checked ({why})",
            "Run the check with a kubeconfig of an administrator of the cluster",
        )
