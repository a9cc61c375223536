# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Least sizes of volumes that storage of clouds creates: a smaller claim gets a volume of that size, and costs it.

"Service tiers" of Filestore, "Managed Lustre CSI driver" of GKE, "FSx for Lustre" and "FSx for OpenZFS" of AWS, and
"Azure Files scalability and performance targets".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LeastSize:
    """Least size of a volume in GiB, and the storage that creates it."""

    gib: int
    storage: str


_TIERS = {
    "": LeastSize(1024, "Filestore, tier basic HDD; 100 GiB in newer versions of its driver"),
    "standard": LeastSize(1024, "Filestore, tier basic HDD; 100 GiB in newer versions of its driver"),
    "basic_hdd": LeastSize(1024, "Filestore, tier basic HDD; 100 GiB in newer versions of its driver"),
    "premium": LeastSize(2560, "Filestore, tier basic SSD"),
    "basic_ssd": LeastSize(2560, "Filestore, tier basic SSD"),
    "zonal": LeastSize(1024, "Filestore, tier zonal"),
    "regional": LeastSize(1024, "Filestore, tier regional"),
    "enterprise": LeastSize(1024, "Filestore, tier enterprise"),
}
_SHARES = LeastSize(100, "Filestore, shares of an instance")
_AZURE_PREMIUM = LeastSize(100, "Azure Files, premium")
_PROVISIONERS = {
    "fsx.csi.aws.com": LeastSize(1200, "FSx for Lustre"),
    "fsx.openzfs.csi.aws.com": LeastSize(64, "FSx for OpenZFS"),
}
_NAMES = {
    # The StorageClass of clusters that the fleet creates on GKE.
    "modelplane-rwx": _TIERS["enterprise"],
    "standard-rwx": _TIERS["standard"],
    "premium-rwx": _TIERS["premium"],
    "zonal-rwx": _TIERS["zonal"],
    "regional-rwx": _TIERS["regional"],
    "enterprise-rwx": _TIERS["enterprise"],
    "enterprise-multishare-rwx": _SHARES,
    "azurefile-premium": _AZURE_PREMIUM,
    "azurefile-csi-premium": _AZURE_PREMIUM,
}


def of_class(name: str) -> LeastSize | None:
    """Return the least size of volumes of a StorageClass that comes with a cluster, by its name; None if unknown."""
    return _NAMES.get(name)


def of_provisioner(provisioner: str, parameters: Mapping[str, str]) -> LeastSize | None:
    """Return the least size of volumes of a StorageClass by its provisioner and parameters; None if unknown."""
    if provisioner == "filestore.csi.storage.gke.io":
        tier = parameters.get("tier", "").lower().replace("-", "_")
        return _SHARES if parameters.get("multishare") == "true" else _TIERS.get(tier)
    if provisioner in ("file.csi.azure.com", "kubernetes.io/azure-file"):
        sku = parameters.get("skuName") or parameters.get("storageAccountType") or ""
        return _AZURE_PREMIUM if sku.lower().startswith("premium") else None
    return _PROVISIONERS.get(provisioner)
