# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The inventory plugin through ansible-inventory, as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.ansible_run import ROOT, inventory, run

pytestmark = pytest.mark.integration

MANIFESTS = ROOT / "tests/data/manifests"
PLUGIN = "plugin: modelplane.fleet.fleet\n"


def hosts(found: dict[str, Any]) -> dict[str, list[str]]:
    return {group: value["hosts"] for group, value in found.items() if "hosts" in value}


def cluster(name: str, source: str = "source: EKS, eks: {region: us-west-2}", labels: str = "") -> str:
    return (
        f"---\napiVersion: modelplane.ai/v1alpha1\nkind: InferenceCluster\nmetadata: {{name: {name}, "
        f"labels: {{{labels}}}}}\nspec: {{cluster: {{{source}}}}}\n"
    )


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """The file of a fleet of three sources, with its manifests beside it."""
    shutil.copytree(MANIFESTS / "seeds", tmp_path / "manifests")
    path = tmp_path / "fleet.yml"
    path.write_text(f"{PLUGIN}resources: [manifests]\nbuild: build\n")
    return path


def test_hosts_groups_and_variables_of_a_fleet(fleet: Path) -> None:
    found, reported = inventory(fleet)
    assert reported == ""
    assert hosts(found) == {
        "control_plane": ["control"],
        "workload_clusters": ["byo-us-east", "eks-us-west", "gke-us-central"],
        "source_existing": ["byo-us-east"],
        "source_eks": ["eks-us-west"],
        "source_gke": ["gke-us-central"],
        "region_us_east": ["byo-us-east"],
        "region_us_west_2": ["eks-us-west"],
        "region_us_central1": ["gke-us-central"],
        "label_modelplane_ai_region_us_east": ["byo-us-east"],
        "label_modelplane_ai_region_us_west": ["eks-us-west"],
        "label_modelplane_ai_region_us_central": ["gke-us-central"],
        "target_directory": ["byo-us-east"],
        "target_kubernetes": ["eks-us-west", "gke-us-central"],
    }
    everywhere = {
        "ansible_connection": "local",
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "fleet_build": str(fleet.parent / "build"),
    }
    assert found["_meta"]["hostvars"] == {
        "control": {**everywhere, "fleet_resources": [str(fleet.parent / "manifests")]},
        "byo-us-east": {
            **everywhere,
            "fleet_cluster": "byo-us-east",
            "fleet_source": "Existing",
            "fleet_region": "us-east",
            "fleet_labels": {"modelplane.ai/region": "us-east"},
            "fleet_connection": {
                "secret": {"namespace": "modelplane-system", "name": "byo-cluster-kubeconfig", "key": "kubeconfig"}
            },
            "fleet_target": "directory",
        },
        "eks-us-west": {
            **everywhere,
            "fleet_cluster": "eks-us-west",
            "fleet_source": "EKS",
            "fleet_region": "us-west-2",
            "fleet_labels": {"modelplane.ai/region": "us-west"},
            "fleet_connection": {"eks": {"cluster": "modelplane-system-eks-us-west-eks-03b8e", "region": "us-west-2"}},
            "fleet_target": "kubernetes",
        },
        "gke-us-central": {
            **everywhere,
            "fleet_cluster": "gke-us-central",
            "fleet_source": "GKE",
            "fleet_region": "us-central1",
            "fleet_labels": {"modelplane.ai/region": "us-central"},
            "fleet_connection": {
                "gke": {
                    "project": "my-gcp-project",
                    "location": "us-central1",
                    "cluster": "modelplane-system-gke-us-central-g-f8ba7",
                }
            },
            "fleet_target": "kubernetes",
        },
    }


def test_the_same_manifests_in_any_order_give_the_same_graph(tmp_path: Path) -> None:
    """All manifests of the reference project that describe a cluster, one source after the other and the reverse."""
    files = sorted(str(path) for path in (MANIFESTS / "concepts").glob("inference-cluster-*.yaml"))
    graphs = []
    for number, each in enumerate((files, files[::-1])):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "fleet.yaml").write_text(f"{PLUGIN}resources: {json.dumps(each)}\n")
        graph, reported = run("ansible-inventory", "-i", str(folder / "fleet.yaml"), "--graph")
        assert reported == ""
        graphs.append(graph)
    assert graphs[0] == graphs[1]
    sources = ("aks", "eks", "existing", "gke", "nebius", "vultr")
    assert [name for name in sources if f"@source_{name}:" in graphs[0]] == list(sources)


def test_group_variables_beside_the_inventory_win(fleet: Path) -> None:
    (fleet.parent / "group_vars").mkdir()
    (fleet.parent / "group_vars/workload_clusters.yml").write_text("fleet_target: directory\nfleet_build: /elsewhere\n")
    (fleet.parent / "host_vars").mkdir()
    (fleet.parent / "host_vars/byo-us-east.yml").write_text("fleet_target: kubernetes\nfleet_kubeconfig: byo.yaml\n")
    variables = inventory(fleet)[0]["_meta"]["hostvars"]
    assert {name: each.get("fleet_target") for name, each in variables.items()} == {
        "control": None,
        "byo-us-east": "kubernetes",
        "eks-us-west": "directory",
        "gke-us-central": "directory",
    }
    assert variables["eks-us-west"]["fleet_build"] == "/elsewhere"


def test_constructed_groups_and_variables(fleet: Path) -> None:
    with fleet.open("a") as stream:
        stream.write(
            """
control_host: the-fleet
keyed_groups:
  - {key: "fleet_labels['modelplane.ai/region']", prefix: where, parent_group: wheres}
groups:
  america: fleet_region is match('us-')
  reached: fleet_target == 'kubernetes'
compose:
  fleet_connection: >-
    fleet_connection | combine({'eks': {'profile': 'p'}} if fleet_source == 'EKS' else {}, recursive=true)
  fleet_target: "'directory' if fleet_source == 'GKE' else fleet_target"
"""
        )
    found, reported = inventory(fleet)
    assert reported == ""
    groups = hosts(found)
    assert groups["control_plane"] == ["the-fleet"]
    assert groups["where_us_west"] == ["eks-us-west"]
    assert sorted(found["wheres"]["children"]) == ["where_us_central", "where_us_east", "where_us_west"]
    assert groups["america"] == ["byo-us-east", "eks-us-west", "gke-us-central"]
    assert groups["target_kubernetes"] == ["eks-us-west"]
    assert groups["target_directory"] == ["byo-us-east", "gke-us-central"]
    variables = found["_meta"]["hostvars"]
    assert variables["eks-us-west"]["fleet_connection"]["eks"]["profile"] == "p"
    assert variables["gke-us-central"]["fleet_target"] == "directory"


BROKEN = (
    cluster("good")
    + cluster("bad", "source: EKS")
    + cluster("worse", "source: GKE, gke: {regon: x}")
    + "---\napiVersion: modelplane.ai/v1alpha1\nkind: ModelDeployment\nmetadata: {name: m}\nspec: {replica: 1}\n"
)


def test_an_invalid_cluster_is_a_warning_and_the_rest_is_there(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(BROKEN)
    (tmp_path / "fleet.yml").write_text(f"{PLUGIN}resources: [c.yaml]\n")
    found, reported = inventory(tmp_path / "fleet.yml")
    assert hosts(found)["workload_clusters"] == ["good"]
    for part in ("InferenceCluster bad", "InferenceCluster worse", "regon", "c.yaml:"):
        assert part in reported, part
    assert "ModelDeployment" not in reported


def test_a_class_in_another_file_is_known(tmp_path: Path) -> None:
    """Warnings of an invalid cluster say what is wrong with it, wherever the classes are."""
    shutil.copy(MANIFESTS / "concepts/inference-class-eks-l4.yaml", tmp_path)
    pools = "nodePools: [{name: gpu, className: eks-l4-1x-g6, nodeCuont: 1}]"
    text = cluster("bad").replace("spec: {", f"spec: {{{pools}, ")
    (tmp_path / "c.yaml").write_text(text + "---\n" + (MANIFESTS / "concepts/inference-class-gke-l4.yaml").read_text())
    (tmp_path / "fleet.yml").write_text(f"{PLUGIN}resources: [c.yaml, inference-class-eks-l4.yaml]\n")
    _, reported = inventory(tmp_path / "fleet.yml")
    assert reported.count("[WARNING]") == 1
    assert "nodeCuont" in reported


def test_strict_reports_all_problems_at_once_and_has_no_hosts(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(BROKEN)
    (tmp_path / "fleet.yml").write_text(f"{PLUGIN}resources: [c.yaml, missing]\nstrict: true\n")
    found, reported = inventory(tmp_path / "fleet.yml")
    assert found["_meta"]["hostvars"] == {}
    for part in ("InferenceCluster bad", "InferenceCluster worse", "regon", "missing: Does not exist"):
        assert part in reported, part


FILES: dict[str, tuple[str, str]] = {
    "nothing to read": ("", "there is nothing to read: give resources, control, or both"),
    "unknown option": (
        "resource: [c.yaml]\nresources: [c.yaml]\n",
        "resource is not a known option. Did you mean resources?",
    ),
    "token": ("control: {server: 'https://k', token: t0p-secret}\n", "control.token is a secret"),
    "kubeconfig_text": ("control: {kubeconfig_text: t0p-secret}\n", "control.kubeconfig_text is a secret"),
    "password": ("control: {kubeconfig: k, proxy: 'http://u:t0p-secret@p'}\n", "control.proxy must not hold a user"),
    "two methods": ("control: {kubeconfig: k, server: 'https://k'}\n", "kubeconfig and server are different methods"),
    "the control host's name": ("resources: [c.yaml]\ncontrol_host: west\n", "set control_host to another name"),
    "a mapping of manifests": ("resources: {a: b}\n", "Invalid value provided for 'list'"),
    "text as a connection": ("control: t0p-secret\n", "control must be a mapping"),
    "a name of Ansible's": ("resources: [all.yaml]\n", "InferenceCluster all cannot be a host"),
}


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    """In one run of Ansible, as each takes its time."""
    sources = []
    for name, (text, _) in FILES.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        (folder / "c.yaml").write_text(cluster("west"))
        (folder / "all.yaml").write_text(cluster("all"))
        (folder / "fleet.yml").write_text(PLUGIN + text)
        sources += ["-i", str(folder / "fleet.yml")]
    out, reported = run("ansible-inventory", *sources, "--list")
    assert json.loads(out)["_meta"]["hostvars"] == {}
    reported = " ".join(reported.split())
    for name, (_, words) in FILES.items():
        assert words in reported, name
    assert "t0p-secret" not in reported


def test_manifests_are_data(tmp_path: Path) -> None:
    """Jinja in a manifest is not evaluated, neither here nor by what reads the variable."""
    (tmp_path / "c.yaml").write_text(cluster("west", 'source: EKS, eks: {region: "{{ 6 * 7 }}"}'))
    (tmp_path / "fleet.yml").write_text(f"{PLUGIN}resources: [c.yaml]\ncompose: {{seen: fleet_region}}\n")
    found, _ = inventory(tmp_path / "fleet.yml")
    assert found["_meta"]["hostvars"]["west"]["seen"] == "{ { 6 * 7 }}"
    shown, _ = run("ansible", "-i", str(tmp_path / "fleet.yml"), "west", "-m", "debug", "-a", "var=fleet_region")
    assert "{ { 6 * 7 }}" in shown
    assert "42" not in shown


def test_the_cache_on_disk(fleet: Path, tmp_path: Path) -> None:
    """It is used, flushed, read again for other options, and check mode leaves it alone."""
    cache = tmp_path / "cache"
    settings = {"ANSIBLE_INVENTORY_CACHE_CONNECTION": str(cache), "ANSIBLE_INVENTORY_CACHE_PLUGIN": "jsonfile"}
    cached = fleet.read_text() + "cache: true\n"
    fleet.write_text(cached)
    run("ansible", "-i", str(fleet), "all", "--check", "--list-hosts", **settings)
    assert not list(cache.glob("*"))
    first, _ = inventory(fleet, **settings)
    (entry,) = cache.glob("*")
    assert "byo-cluster-kubeconfig" in entry.read_text()
    (tmp_path / "manifests" / "more.yaml").write_text(cluster("more"))
    assert inventory(fleet, **settings)[0] == first
    flushed, _ = inventory(fleet, "--flush-cache", **settings)
    assert "more" in flushed["workload_clusters"]["hosts"]
    fleet.write_text(cached.replace("[manifests]", "[manifests/more.yaml]"))
    assert inventory(fleet, **settings)[0]["workload_clusters"]["hosts"] == ["more"]


def test_a_folder_of_an_inventory_and_its_manifests(fleet: Path) -> None:
    """`-i folder/`: the manifests in it are no inventory; the file's ending selects the plugin."""
    (fleet.parent / "extra.yml").write_text("workload_clusters: {hosts: {by-hand: {fleet_target: directory}}}\n")
    found, reported = inventory(fleet.parent)
    assert reported == ""
    assert found["workload_clusters"]["hosts"] == ["by-hand", "byo-us-east", "eks-us-west", "gke-us-central"]


def cloud(kind: str, name: str, region: str, namespace: str = "modelplane-system") -> str:
    machine = "instanceType: g6.xlarge" if kind == "EKSCluster" else "machineType: g2-standard-4"
    return (
        f"---\napiVersion: infrastructure.modelplane.ai/v1alpha1\nkind: {kind}\n"
        f"metadata: {{name: {name}, namespace: {namespace}, labels: {{tier: gold}}}}\nspec:\n  region: {region}\n"
        f"  nodePools:\n    - {{name: g, role: GPU, {machine}, gpu: {{acceleratorType: l4}}, zones: [{region}a]}}\n"
    )


def test_clusters_that_are_written_for_a_cloud_are_hosts(tmp_path: Path) -> None:
    """One that an InferenceCluster logs in to with its Secret is one host with that, reached by its name in AWS."""
    logs_in = "source: Existing, existing: {secretRef: {name: %s}}"
    (tmp_path / "all.yaml").write_text(
        cloud("EKSCluster", "west", "us-west-2")
        + cloud("EKSCluster", "apart", "eu-west-1", "infra")
        + cloud("GKECluster", "north", "europe-north1")
        + cloud("EKSCluster", "joined", "us-east-1")
        + cluster("joined", logs_in % "joined-kubeconfig-9509f")
        + cloud("EKSCluster", "unjoined", "us-east-1")
        + cluster("unjoined", logs_in % "mine")
    )
    (tmp_path / "fleet.yml").write_text(f"{PLUGIN}resources: [all.yaml]\n")
    found, reported = inventory(tmp_path / "fleet.yml")
    assert reported == ""
    groups = hosts(found)
    assert groups["workload_clusters"] == ["apart", "joined", "north", "unjoined", "west"]
    assert groups["source_eks"] == ["apart", "west"]
    assert groups["source_gke"] == ["north"]
    assert groups["source_existing"] == ["joined", "unjoined"]
    assert groups["label_tier_gold"] == ["apart", "north", "west"]
    variables = found["_meta"]["hostvars"]
    assert {
        name: (each["fleet_region"], each["fleet_connection"]) for name, each in variables.items() if name != "control"
    } == {
        "west": ("us-west-2", {"eks": {"cluster": "modelplane-system-west-eks-3301a", "region": "us-west-2"}}),
        "apart": ("eu-west-1", {"eks": {"cluster": "infra-apart-eks-66a49", "region": "eu-west-1"}}),
        "north": (
            "europe-north1",
            {"gke": {"location": "europe-north1", "cluster": "modelplane-system-north-gke-9bed2"}},
        ),
        "joined": ("us-east-1", {"eks": {"cluster": "modelplane-system-joined-eks-c87a4", "region": "us-east-1"}}),
        "unjoined": ("", {"secret": {"namespace": "modelplane-system", "name": "mine", "key": "kubeconfig"}}),
    }
    assert variables["west"]["fleet_source"] == "EKS"
    assert variables["west"]["fleet_target"] == variables["joined"]["fleet_target"] == "kubernetes"


def test_an_invalid_cluster_of_a_cloud_is_reported(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(
        cloud("EKSCluster", "west", "us-west-2")
        + cloud("EKSCluster", "east", "us-east-1").replace("role: GPU", "role: X")
    )
    (tmp_path / "fleet.yml").write_text(f"{PLUGIN}resources: [all.yaml]\n")
    found, reported = inventory(tmp_path / "fleet.yml")
    assert hosts(found)["workload_clusters"] == ["west"]
    assert "EKSCluster modelplane-system/east, spec.nodePools[0].role: Must be one of System, GPU" in reported
