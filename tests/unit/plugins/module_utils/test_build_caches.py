# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs one after another with a ModelCache on a fleet that is not observed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs

Object = dict[str, Any]

MANIFESTS = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: l4}
spec:
  devices:
  - {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, capacity: {memory: {value: 23034Mi}}}
---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: one}
spec:
  cluster: {source: Existing, existing: {secretRef: {name: one}, cache: {storageClassName: rwx}}}
  nodePools: [{name: gpu, className: l4, nodeCount: 4}]
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelCache
metadata: {name: weights, namespace: team}
spec:
  source: HuggingFace
  huggingFace: {repo: Qwen/Qwen3-8B, sizeGiB: 40, authSecret: {name: hf}}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: qwen, namespace: team}
spec:
  replicas: 1
  template:
    spec:
      modelCacheRef: {name: weights}
      engines:
      - name: main
        members:
        - nodeSelector: {devices: [{name: gpu, selectors: [{cel: device.driver == "gpu.nvidia.com"}]}]}
          template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0"}]}}
"""
CACHE = MANIFESTS.split("---\n")[2]
MANUAL = """---
apiVersion: modelplane.ai/v1alpha1
kind: ModelReplica
metadata: {name: mine, namespace: team}
spec:
  clusterName: one
  modelCacheRef: {name: weights}
  engines:
  - name: main
    members:
    - nodePoolName: gpu
      deviceRequests: [{name: gpu, deviceClassName: gpu.nvidia.com}]
      template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0"}]}}
"""
FIRST = "modelcache-team-weights-ba7c8"
EDITS = ("Qwen/Qwen3-8B,", "Qwen/Qwen3-8B, revision: v2,")


class Fleet:
    """One manifest, and what is built of it. Every run is followed by one that changes nothing."""

    def __init__(self, folder: Path) -> None:
        self.manifest = folder / "fleet.yaml"
        self.built = folder / "build"
        self.text = MANIFESTS

    def edit(self, old: str, new: str) -> None:
        assert old in self.text
        self.text = self.text.replace(old, new)

    def run(self) -> build.Outcome:
        self.manifest.write_text(self.text)
        settings = fleet_inputs.Settings((str(self.manifest),), str(self.built))
        outcome = build.build(settings)
        assert not build.build(settings).changes
        return outcome

    def objects(self, kind: str) -> list[Object]:
        found = [yaml.safe_load(path.read_text()) for path in sorted(self.built.rglob("*.yaml"))]
        return [value for value in found if value["kind"] == kind]

    def claims(self) -> dict[str, str]:
        """Return what each claim holds."""
        return {
            value["metadata"]["name"]: value["metadata"]["annotations"]["modelplane.ai/artifact"]
            for value in self.objects("PersistentVolumeClaim")
        }

    def mounted(self) -> list[str]:
        return [
            volume["persistentVolumeClaim"]["claimName"]
            for value in self.objects("Deployment")
            for volume in value["spec"]["template"]["spec"]["volumes"]
            if "persistentVolumeClaim" in volume
        ]

    def filled(self) -> set[str]:
        """The claims that Jobs fill."""
        return {
            volume["persistentVolumeClaim"]["claimName"]
            for value in self.objects("Job")
            for volume in value["spec"]["template"]["spec"]["volumes"]
            if "persistentVolumeClaim" in volume
        }


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(tmp_path)
    fleet.run()
    return fleet


def test_the_first_artifact_has_the_documented_name(fleet: Fleet) -> None:
    assert fleet.claims() == {FIRST: "Qwen/Qwen3-8B@main@Folder"}
    assert fleet.mounted() == [FIRST]


def test_engines_roll_and_the_volume_before_stays_until_the_next_edit(fleet: Fleet) -> None:
    """It is unknown when the last pod that mounts it is gone."""
    fleet.edit(*EDITS)
    fleet.run()
    (second,) = set(fleet.claims()) - {FIRST}
    assert fleet.claims() == {FIRST: "Qwen/Qwen3-8B@main@Folder", second: "Qwen/Qwen3-8B@v2@Folder"}
    assert fleet.mounted() == [second]
    fleet.edit("revision: v2", "revision: v3")
    fleet.run()
    assert set(fleet.claims().values()) == {"Qwen/Qwen3-8B@v2@Folder", "Qwen/Qwen3-8B@v3@Folder"}
    fleet.edit("revision: v3", "revision: v2")
    fleet.run()
    assert fleet.mounted() == [second]
    assert set(fleet.claims().values()) == {"Qwen/Qwen3-8B@v2@Folder", "Qwen/Qwen3-8B@v3@Folder"}


def test_edits_of_the_deployment_keep_both_volumes(fleet: Fleet) -> None:
    fleet.edit(*EDITS)
    fleet.run()
    before = fleet.claims()
    fleet.edit("v0.23.0", "v0.24.0")
    fleet.run()
    assert fleet.claims() == before


def test_a_layout_comes_with_its_volume(fleet: Fleet) -> None:
    fleet.edit("sizeGiB", "layout: HubCache, sizeGiB")
    fleet.run()
    (replica,) = fleet.objects("ModelReplica")
    assert replica["spec"]["modelCacheRef"]["layout"] == "HubCache"
    assert fleet.mounted() != [FIRST]
    (container,) = (
        value["spec"]["template"]["spec"]["containers"][0]
        for value in fleet.objects("Deployment")
        if "epp" not in value["metadata"]["name"]
    )
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in container["env"]


@pytest.mark.parametrize("how", ["narrowed", "deleted"])
def test_a_volume_that_is_mounted_stays_with_its_download(fleet: Fleet, how: str) -> None:
    before = fleet.objects("PersistentVolumeClaim"), fleet.objects("Job")
    if how == "narrowed":
        fleet.edit("spec:\n  source: Hugging", "spec:\n  clusterSelector: {matchLabels: {a: b}}\n  source: Hugging")
    else:
        fleet.edit(f"---\n{CACHE}", "")
    outcome = fleet.run()
    assert (fleet.objects("PersistentVolumeClaim"), fleet.objects("Job")) == before
    (staged,) = outcome.plan.caches
    assert staged.copies["one"].source_name == "hf"
    fleet.edit("replicas: 1", "replicas: 0")
    fleet.run()
    assert not fleet.claims()
    assert not fleet.filled()


def test_a_cache_is_on_the_cluster_that_its_selector_names(fleet: Fleet) -> None:
    named = "spec:\n  clusterSelector: {matchLabels: {modelplane.ai/cluster: one}}\n  source: Hugging"
    fleet.edit("spec:\n  source: Hugging", named)
    fleet.edit("replicas: 1", "replicas: 0")
    fleet.run()
    assert list(fleet.claims()) == [FIRST]


def test_a_cache_that_is_renamed_keeps_its_volume_while_engines_roll(fleet: Fleet) -> None:
    fleet.edit("{name: weights, namespace", "{name: other, namespace")
    fleet.edit("modelCacheRef: {name: weights}", "modelCacheRef: {name: other}")
    fleet.run()
    assert FIRST in fleet.claims()
    assert len(fleet.claims()) == 2
    assert fleet.mounted() == sorted(set(fleet.claims()) - {FIRST})


def test_hand_written_replicas_follow_their_cache(fleet: Fleet) -> None:
    fleet.text += MANUAL
    fleet.run()
    assert fleet.mounted() == [FIRST, FIRST]
    fleet.edit(*EDITS)
    fleet.run()
    (second,) = set(fleet.claims()) - {FIRST}
    assert fleet.mounted() == [second, second]


def test_a_hand_written_replica_may_name_its_volume(fleet: Fleet) -> None:
    fleet.edit(*EDITS)
    fleet.run()
    (second,) = set(fleet.claims()) - {FIRST}
    (replica,) = fleet.objects("ModelReplica")
    fleet.text += MANUAL.replace(
        "{name: weights}", f"{{name: weights, volume: {replica['spec']['modelCacheRef']['volume']}}}"
    )
    fleet.edit("revision: v2", "revision: v3")
    fleet.run()
    assert second in fleet.mounted()
    assert len(set(fleet.mounted())) == 2
    assert set(fleet.mounted()) <= set(fleet.claims())


def test_a_size_is_held_and_reported(fleet: Fleet) -> None:
    fleet.edit("sizeGiB: 40", "sizeGiB: 10")
    outcome = fleet.run()
    (claim,) = fleet.objects("PersistentVolumeClaim")
    assert claim["spec"]["resources"]["requests"]["storage"] == "40Gi"
    assert outcome.plan.warnings == (
        "ModelCache team/weights, spec.huggingFace.sizeGiB: The volume on one keeps its size of 40 GiB, as Kubernetes "
        "cannot shrink volumes (got 10). Set it to 40 or more; for a smaller volume create another ModelCache and "
        "refer to that.",
    )
    fleet.edit(*EDITS)
    fleet.run()
    sizes = {c["spec"]["resources"]["requests"]["storage"] for c in fleet.objects("PersistentVolumeClaim")}
    assert sizes == {"40Gi", "10Gi"}, "a new volume is as large as it was asked for"


@pytest.mark.parametrize(
    ("storage_class", "asked", "size"),
    [
        ("enterprise-rwx", 5, 1024),
        ("zonal-rwx", 40, 1024),
        ("standard-rwx", 1000, 1024),
        ("premium-rwx", 1024, 2560),
        ("enterprise-multishare-rwx", 40, 100),
        ("azurefile-csi-premium", 99, 100),
        ("enterprise-rwx", 1024, 0),
        ("premium-rwx", 3000, 0),
        ("rwx", 5, 0),
        ("modelplane-rwx-efs", 5, 0),
    ],
)
def test_a_volume_that_is_larger_than_its_claim_is_reported(
    fleet: Fleet, storage_class: str, asked: int, size: int
) -> None:
    fleet.text = fleet.text.replace("storageClassName: rwx", f"storageClassName: {storage_class}")
    fleet.edit("weights, namespace", "other, namespace")
    fleet.edit("name: weights", "name: other")
    fleet.edit("sizeGiB: 40", f"sizeGiB: {asked}")
    outcome = fleet.run()
    found = [line for line in outcome.plan.warnings if "creates no smaller one" in line]
    assert len(found) == bool(size)
    if size:
        assert found[0].startswith(
            f"ModelCache team/other, spec.huggingFace.sizeGiB: The volume on one has {size} GiB, because its storage "
            f"creates no smaller one, and costs as much (StorageClass {storage_class}, "
        )
        assert f"(got {asked})" in found[0]


def test_the_storage_of_clusters_on_gke_is_reported(tmp_path: Path) -> None:
    text = MANIFESTS.replace(
        "{source: Existing, existing: {secretRef: {name: one}, cache: {storageClassName: rwx}}}",
        "{source: GKE, gke: {region: us-central1}}",
    ).replace("nodeCount: 4}", "nodeCount: 4, zones: [us-central1-a]}")
    provisioning = "{provider: GKE, gke: {machineType: g2-standard-4, accelerator: {type: nvidia-l4, count: 1}}}"
    text = text.replace("spec:\n  devices:", f"spec:\n  provisioning: {provisioning}\n  devices:")
    fleet = Fleet(tmp_path)
    fleet.text = text
    outcome = fleet.run()
    assert any("has 1024 GiB" in line and "Filestore, tier enterprise" in line for line in outcome.plan.warnings)


def test_claims_of_a_build_that_did_not_report_what_they_hold_are_taken_over(fleet: Fleet) -> None:
    (path,) = fleet.built.rglob("persistentvolumeclaim-*.yaml")
    claim = path.read_text()
    start = claim.index("  annotations:")
    path.write_text(claim[:start] + claim[claim.index("\n", claim.index("modelplane.ai/artifact")) + 1 :])
    assert "artifact" not in path.read_text()
    fleet.run()
    assert fleet.claims() == {FIRST: "Qwen/Qwen3-8B@main@Folder"}


# Read-only mounts


def read_only(fleet: Fleet) -> list[bool]:
    """Return whether each engine mounts the weights read-only, with a folder of its own for modules of the model."""
    found = []
    for value in fleet.objects("Deployment"):
        spec = value["spec"]["template"]["spec"]
        if not any("persistentVolumeClaim" in volume for volume in spec["volumes"]):
            continue
        (engine,) = spec["containers"]
        (mount,) = [each for each in engine["volumeMounts"] if each["name"] == "model-cache"]
        modules = [each["mountPath"] for each in engine["volumeMounts"] if each["name"] == "model-modules"]
        values = [each["value"] for each in engine.get("env", ()) if each["name"] == "HF_MODULES_CACHE"]
        assert values == modules
        assert any("emptyDir" in each and each["name"] == "model-modules" for each in spec["volumes"]) == bool(modules)
        assert mount.get("readOnly", False) == bool(modules)
        found.append(bool(modules))
    return found


def as_earlier(fleet: Fleet) -> None:
    """Make the build that of an earlier release, whose engines mount the weights writable."""
    fleet.edit("modelCacheRef: {name: weights}", "modelCacheRef: {name: weights, readOnly: false}")
    fleet.run()
    fleet.edit("modelCacheRef: {name: weights, readOnly: false}", "modelCacheRef: {name: weights}")


@pytest.mark.parametrize("layout", ["Folder", "HubCache"])
def test_new_engines_mount_weights_read_only(tmp_path: Path, layout: str) -> None:
    new = Fleet(tmp_path / "new")
    new.manifest.parent.mkdir()
    new.edit("Qwen/Qwen3-8B,", f"Qwen/Qwen3-8B, layout: {layout},")
    new.run()
    assert read_only(new) == [True]


def test_running_engines_keep_their_mount_until_they_roll(fleet: Fleet) -> None:
    as_earlier(fleet)
    before = fleet.objects("Deployment")
    fleet.run()
    assert fleet.objects("Deployment") == before, "an upgrade restarts nothing"
    assert read_only(fleet) == [False]
    fleet.edit("replicas: 1", "replicas: 2")
    fleet.run()
    assert sorted(read_only(fleet)) == [False, True]
    fleet.edit("v0.23.0", "v0.24.0")
    fleet.run()
    assert read_only(fleet) == [True, True]


def test_another_volume_is_mounted_read_only(fleet: Fleet) -> None:
    as_earlier(fleet)
    fleet.run()
    fleet.edit(*EDITS)
    fleet.run()
    assert read_only(fleet) == [True]


def test_engines_that_write_to_the_volume_ask_for_it(fleet: Fleet) -> None:
    fleet.edit("modelCacheRef: {name: weights}", "modelCacheRef: {name: weights, readOnly: false}")
    fleet.run()
    assert read_only(fleet) == [False]
    fleet.edit("readOnly: false", "readOnly: true")
    fleet.run()
    assert read_only(fleet) == [True]
