# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Minimum sizes of volumes of clouds. A smaller claim gets a volume of the minimum size, at the same cost.

Sources: "Service tiers" of Filestore; `StorageCapacity` in the Amazon FSx API reference (CreateFileSystem), for FSx for
Lustre and FSx for OpenZFS; `minimumPremiumShareSize` and `minimumPremiumV2ShareSize` of the Azure Files CSI driver
(pkg/azurefile/azurefile.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class LeastSize:
    """Minimum size of a volume in GiB, and the storage that creates it."""

    gib: int
    storage: str


_BASIC_HDD = LeastSize(1024, "Filestore, tier basic HDD; 100 GiB in newer versions of its driver")
_BASIC_SSD = LeastSize(2560, "Filestore, tier basic SSD")
_TIERS = {
    **dict.fromkeys(("", "standard", "basic_hdd"), _BASIC_HDD),
    **dict.fromkeys(("premium", "basic_ssd"), _BASIC_SSD),
    **{tier: LeastSize(1024, f"Filestore, tier {tier}") for tier in ("zonal", "regional", "enterprise")},
}
_SHARES = LeastSize(100, "Filestore, shares of an instance")
_AZURE_PREMIUM = LeastSize(100, "Azure Files, premium")
_NAMES = {
    # The StorageClass of clusters that the fleet creates on GKE.
    "modelplane-rwx": _TIERS["enterprise"],
    **{f"{tier}-rwx": _TIERS[tier] for tier in ("standard", "premium", "zonal", "regional", "enterprise")},
    "enterprise-multishare-rwx": _SHARES,
    **dict.fromkeys(("azurefile-premium", "azurefile-csi-premium"), _AZURE_PREMIUM),
}


def of_class(name: str) -> LeastSize | None:
    """Return the minimum size of a predefined StorageClass by its name; None if unknown."""
    return _NAMES.get(name)


def of_provisioner(provisioner: str, parameters: Mapping[str, str]) -> LeastSize | None:
    """Return the minimum size of a StorageClass by its provisioner and parameters; None if unknown."""
    if provisioner == "filestore.csi.storage.gke.io":
        tier = parameters.get("tier", "").lower().replace("-", "_")
        return _SHARES if parameters.get("multishare") == "true" else _TIERS.get(tier)
    if provisioner in ("file.csi.azure.com", "kubernetes.io/azure-file"):
        sku = (parameters.get("skuName") or parameters.get("storageAccountType") or "").lower()
        if sku.startswith("premiumv2"):
            return LeastSize(32, "Azure Files, premium, provisioned v2")
        return _AZURE_PREMIUM if sku.startswith("premium") else None
    if provisioner == "fsx.csi.aws.com":
        if parameters.get("storageType") == "HDD":
            throughput = parameters.get("perUnitStorageThroughput", "12")
            return LeastSize(1800 if throughput == "40" else 6000, f"FSx for Lustre, HDD, {throughput} MB/s/TiB")
        return LeastSize(1200, "FSx for Lustre")
    return LeastSize(64, "FSx for OpenZFS") if provisioner == "fsx.openzfs.csi.aws.com" else None
