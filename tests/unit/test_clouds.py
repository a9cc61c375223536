# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Only the packages of a cloud and the registries name it: read from the text of every file that runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.registry import (
    BACKENDS,
    LOGINS,
    POOL_SIZES,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_class import Provisioning
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_cluster import ClusterSource
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.cloud import Cloud
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.registry import CLOUDS

ROOT = Path(__file__).parents[2]
FOLDERS = ("plugins", "roles", "playbooks")
ENDINGS = (".py", ".yml", ".yaml", ".j2")
# Not within another word: "weeks" names no cloud.
NAMES = re.compile(r"(?<![a-z])(?:amazon|aws|eks|gcp|gke|google)", re.IGNORECASE)

# A path that ends with a slash is a folder, one that ends with an underscore begins names of files.
PACKAGES = (
    "plugins/module_utils/aws/",
    "plugins/module_utils/google/",
    *(f"plugins/module_utils/core/cloud/{cloud.name}/" for cloud in CLOUDS),
    *(f"plugins/doc_fragments/{cloud.name}.py" for cloud in CLOUDS),
    *(f"roles/{cloud.name}_cluster/" for cloud in CLOUDS),
    *(f"playbooks/files/classes/{cloud.name}/" for cloud in CLOUDS),
)
ALLOWED = {
    "plugins/module_utils/core/cloud/registry.py": "the registry of the core",
    "plugins/module_utils/cloud/registry.py": "the registry of what works with the APIs of clouds",
    "plugins/module_utils/core/api/": "the kinds: what users write, and what other clouds' fields are called",
    "roles/control_plane/files/crds/": "written from the kinds by tests/generated/generate.py",
    "roles/control_plane/files/rbac/control-plane.yaml": "the plural names of the kinds, to which rights are given",
    "plugins/module_utils/arguments/inventory_variables.py": "the reference of variables, with those of cloud clusters",
    "plugins/module_utils/_aws.py": "the only file that imports a library",
    "plugins/module_utils/_google.py": "the only file that imports a library",
    "plugins/doc_fragments/aws.py": "options of the modules of one cloud",
    "plugins/doc_fragments/google.py": "options of the modules of one cloud",
    "plugins/modules/cloud_": "documentation: what the options and results are in each cloud",
    "plugins/filter/eks_plan.py": "the plan of one cloud",
    "plugins/filter/gke_plan.py": "the plan of one cloud",
    "plugins/modules/gcp_service_account_key.py": "an identity that only one cloud has",
    "plugins/module_utils/core/cloud/volume_sizes.py": "the storage of any vendor, which any cluster may have",
    "plugins/module_utils/core/compose/top_level_domains.py": "top-level domains, of any company",
    "plugins/module_utils/core/secret_shapes.py": "the shapes of tokens, of any vendor",
    "plugins/module_utils/kubernetes/exec_plugin.py": "the shapes of tokens, of any vendor",
    "plugins/modules/kubeconfig_secret.py": "the older name of an option",
}
# Names of things that are no cloud.
FOREIGN = {
    r"google\.protobuf\.": "types of CEL and of protocol buffers",
    r"type\.googleapis\.com/envoy": "types of Envoy's configuration",
    r"github\.com/google/re2": "the grammar of RE2",
}
NOT_YET = (
    "roles/control_plane/meta/argument_specs.yml",
    "roles/serving_stack/defaults/main.yml",
    "roles/serving_stack/meta/argument_specs.yml",
)
"""Files that still name a cloud. It only ever gets shorter."""

PATHS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in ENDINGS
)


def is_below(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or (place.endswith(("/", "_")) and path.startswith(place)) for place in places)


def namings(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line that names a cloud."""
    for number, line in enumerate(text.splitlines(), 1):
        if NAMES.search(re.sub("|".join(FOREIGN), "", line)):
            yield number, line.strip()


def found(path: str) -> list[str]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return [f"{path}:{number}: {line[:100]}" for number, line in namings(text)]


def test_nothing_else_names_a_cloud() -> None:
    others = [path for path in PATHS if not is_below(path, (*PACKAGES, *ALLOWED, *NOT_YET))]
    lines = [line for path in others for line in found(path)]
    assert not lines, "take what differs between clouds from core/cloud/registry.py:\n" + "\n".join(lines)


@pytest.mark.parametrize("place", [*PACKAGES, *ALLOWED, *NOT_YET])
def test_each_exception_is_needed(place: str) -> None:
    assert any(found(path) for path in PATHS if is_below(path, (place,))), f"{place} names no cloud: take it out"


@pytest.mark.parametrize("name", FOREIGN)
def test_each_foreign_name_is_met(name: str) -> None:
    assert any(re.search(name, (ROOT / path).read_text(encoding="utf-8")) for path in PATHS)


def test_a_naming_would_be_seen() -> None:
    text = "KINDS = ('EKSCluster',)\nin two weeks\n# on GKE\n_gke_settings\ngoogle.protobuf.Duration"
    assert [number for number, _line in namings(text)] == [1, 3, 4]


@pytest.mark.parametrize("cloud", CLOUDS, ids=lambda cloud: cloud.name)
def test_what_belongs_to_a_cloud_is_there(cloud: Cloud) -> None:
    assert issubclass(api.KINDS[cloud.kind], api.CloudCluster)
    assert (cloud.name, cloud.kind) == (cloud.source.lower(), f"{cloud.source}Cluster")
    for model in (ClusterSource, Provisioning):
        assert cloud.name in model.model_fields
    assert cloud.name in LOGINS
    for place in PACKAGES[2:]:
        assert (ROOT / place).exists(), place


def test_clouds_whose_autoscalers_start_no_first_node_let_the_fleet_do_it() -> None:
    assert set(POOL_SIZES) == {cloud.name for cloud in CLOUDS if not cloud.starts_first_node}


def test_all_registries_have_the_same_clouds() -> None:
    kinds = {name for name, model in api.KINDS.items() if issubclass(model, api.CloudCluster)}
    assert kinds == {cloud.kind for cloud in CLOUDS}
    assert list(LOGINS) == [cloud.name for cloud in CLOUDS]
    assert set(BACKENDS) <= set(LOGINS)


def variables(cloud: Cloud) -> set[str]:
    """Names of the defaults and the internal variables of the role of a cloud."""
    folder = ROOT / "roles" / f"{cloud.name}_cluster"
    return {name for part in ("defaults", "vars") for name in yaml.safe_load((folder / part / "main.yml").read_text())}


@pytest.mark.parametrize("cloud", CLOUDS, ids=lambda cloud: cloud.name)
def test_the_role_of_a_cloud_has_all_variables_that_the_shared_tasks_read(cloud: Cloud) -> None:
    shared = "\n".join(path.read_text() for path in (ROOT / "roles" / "cloud_cluster").rglob("*.yml"))
    read = re.findall(r"lookup\('ansible.builtin.vars', ('_' ~ )?_cloud_cluster_prefix ~ '(\w+)'(, default)?", shared)
    needed = {
        f"{'_' if internal else ''}{cloud.name}_cluster{name}" for internal, name, optional in read if not optional
    }
    assert len(needed) > 20
    assert needed <= variables(cloud)
