# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The inventory plugin `modelplane.fleet.fleet`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
author:
  - The modelplane.fleet authors (@modelplane)
version_added: 0.1.0
short_description: Inventory of a fleet's clusters from manifests or a control cluster
description:
  - Creates a host for each InferenceCluster, in the group C(workload_clusters), and a host for the fleet, in the group
    C(control_plane).
  - A cloud cluster resource that a user created is also a host. If an InferenceCluster with the source C(Existing)
    has the same name and refers to its kubeconfig Secret, both are one host, with a connection by cloud name.
  - Reads C(modelplane.ai/v1alpha1) and C(infrastructure.modelplane.ai/v1alpha1) manifests, the resources of these kinds
    on the control cluster, or both.
  - Groups the clusters by source (C(source_existing)), by region (C(region_us_west_2)), by label
    (C(label_modelplane_ai_tier_gold)), and by target, which is C(target_kubernetes), or C(target_directory) for
    file-based clusters. Characters that are invalid in a group name become underscores.
  - C(docs/inventory.md) describes the host variables. A handwritten inventory with the same variables works in the same
    way.
  - Secrets are neither in variables nor in the cache. Variables only refer to the location of a kubeconfig or a token.
  - The file name must end in C(fleet.yml), C(fleet.yaml), C(modelplane.yml) or C(modelplane.yaml).
notes:
  - O(resources), O(control), O(build) and O(control_host) can be templates with lookups and extra variables.
  - The plugin reads only InferenceClusters and cloud cluster resources. It skips cloud cluster resources on a control
    cluster if the user has no permission to list them. M(modelplane.fleet.resource_info) and every run report errors of
    other manifests, and missing InferenceClasses.
  - With O(strict=false), the plugin warns about a manifest with errors, and its cluster is not a host. Nothing on that
    cluster changes then.
requirements:
  - pydantic >= 2.10
  - urllib3 >= 2.2.1 and certifi, for O(control)
options:
  plugin:
    description: The name of the plugin.
    type: str
    required: true
    choices: [modelplane.fleet.fleet]
  resources:
    description:
      - Files, directories and glob patterns with the manifests of the fleet. Relative paths start from the directory of
        the inventory file.
      - The value is also available as the variable C(fleet_resources).
    type: list
    elements: str
    default: []
  control:
    description:
      - The connection to the control cluster, to read clusters from it. The value is also available as the variable
        C(fleet_control).
      - A mapping with the keys of C(fleet_connection), except C(secret). The keys C(token) and C(kubeconfig_text), and
        passwords in URLs, are rejected because C(ansible-inventory) shows variables. Relative paths start from the
        directory of the inventory file.
      - A cluster can be both in O(resources) and on the control cluster. The manifest is used if both are identical, or
        if this collection created the resource on the control cluster. Otherwise the plugin reports an error.
      - With O(resources), the control cluster can be new, without the CRDs of the fleet's kinds.
    type: raw
  build:
    description:
      - The build directory, which is available as the variable C(fleet_build). A relative path starts from the
        directory of the inventory file.
    type: str
  control_host:
    description: The name of the host in the group C(control_plane).
    type: str
    default: control
  strict:
    description:
      - If V(true), every error in a cluster manifest, and every invalid entry of O(compose), O(groups) and
        O(keyed_groups), fails the inventory. If V(false), errors in manifests are warnings, and invalid entries are
        skipped.
extends_documentation_fragment:
  - constructed
  - inventory_cache
"""

EXAMPLES = r"""
# fleet.yml: manifests in the directory manifests, next to the inventory file
plugin: modelplane.fleet.fleet
resources:
  - manifests
build: ../build

# fleet.yml: all clusters on the control cluster, cached in a file for ten minutes
# plugin: modelplane.fleet.fleet
# control:
#   kubeconfig: ~/.kube/config
#   context: fleet
# cache: true
# cache_plugin: ansible.builtin.jsonfile
# cache_connection: ~/.cache/ansible-inventory
# cache_timeout: 600

# fleet.yml: manifests, additional groups, and impersonation on existing clusters
# plugin: modelplane.fleet.fleet
# resources:
#   - manifests
# keyed_groups:
#   - key: fleet_labels['modelplane.ai/tier']
#     prefix: tier
# groups:
#   gold_in_europe: fleet_labels['modelplane.ai/tier'] == 'gold' and fleet_region is match('eu')
# compose:
#   fleet_connection: >-
#     fleet_connection | combine({'impersonate': 'reader'} if fleet_source == 'Existing' else {})
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible import context  # type: ignore[attr-defined]
from ansible.errors import AnsibleParserError
from ansible.inventory.group import to_safe_group_name
from ansible.module_utils.basic import missing_required_lib
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.template import trust_as_template
from ansible_collections.modelplane.fleet.plugins.plugin_utils import byte_code

byte_code.load("module_utils.stores.manifests")

from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import PYDANTIC_IMPORT_ERROR
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import connections
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import registry
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.names import kubeconfig_secret
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.reading import is_composed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SYSTEM_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    PUBLISHED_LABEL,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import (
    first_lines,
    nearest_key,
    without_templates,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.stores import manifests

CONTROL_PLANE = "control_plane"
WORKLOAD_CLUSTERS = "workload_clusters"
ENDINGS = ("fleet.yml", "fleet.yaml", "modelplane.yml", "modelplane.yaml")
KINDS = registry.CLUSTER_KINDS
REGION_LABEL = "modelplane.ai/region"
# Version of the cached data. Increase it with each change of their format.
_CACHE_FORM = 2
_MOST_WARNINGS = 20
_OF_CLUSTERS = re.compile("|".join(("inferencec", *registry.KINDS)).encode(), re.IGNORECASE)
# Names with a special meaning in Ansible.
_TAKEN = ("all", "ungrouped", "localhost")
# Of sources that are not built by the fleet.
_REGION_FIELDS = {"AKS": "location", "Vultr": "region"}

Cluster = api.InferenceCluster | api.CloudCluster


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):  # type: ignore[misc]
    """Hosts and groups of a fleet."""

    NAME = "modelplane.fleet.fleet"

    def verify_file(self, path: str) -> bool:
        """Return True if this plugin supports the file, by its name."""
        return super().verify_file(path) and path.endswith(ENDINGS)

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Read the file and fill the inventory. All possible errors occur before the first host is added."""
        super().parse(inventory, loader, path, cache)
        if PYDANTIC_IMPORT_ERROR:
            raise AnsibleParserError(missing_required_lib("pydantic"))
        self._read_config_data(path)
        config = self._checked(path)
        descriptions = self._cached(path, config, cache)
        self._refuse_names(config["control_host"], descriptions)
        self._fill(config, descriptions)

    def _checked(self, path: str) -> dict[str, Any]:
        """Return the options of this plugin, with absolute paths."""
        written_options = self.loader.load_from_file(path, cache="none")
        known_options = {"plugin", *self.option_definitions}
        problems = [
            f"{key} is not a known option. {nearest_key(key, known_options)}"
            for key in written_options
            if key not in known_options
        ]
        self.templar.available_variables = self._vars
        folder = os.path.dirname(os.path.abspath(path))
        values = {name: self._option(name) for name in ("resources", "control", "build", "control_host")}
        resources = [connections.absolute(str(resource_path), folder) for resource_path in values["resources"] or ()]
        control: dict[str, Any] = {}
        if values["control"]:
            try:
                control = connections.checked_control("control", values["control"], folder)
            except connections.ConnectionsError as error:
                problems.extend(error.problems)
        elif not resources:
            problems.append("there is nothing to read: give resources, control, or both")
        if problems:
            raise AnsibleParserError(f"{path}:\n" + "\n".join(problems))
        return {
            "resources": resources,
            "control": control,
            "build": connections.absolute(str(values["build"]), folder) if values["build"] else "",
            "control_host": str(values["control_host"]),
        }

    def _option(self, name: str) -> Any:
        return self.templar.template(self.get_option(name))

    def _cached(self, path: str, config: Mapping[str, Any], cache: bool) -> list[dict[str, Any]]:
        """Return the clusters, from the cache if it exists and has the same options."""
        if not self.get_option("cache"):
            return self._read(config)
        key = self.get_cache_key(path)
        # The options contain no secret, because checked_control rejects secrets.
        of = hashlib.sha256(
            json.dumps([_CACHE_FORM, config["resources"], config["control"], self.get_option("strict")]).encode()
        ).hexdigest()
        if cache:
            try:
                entry = self._cache[key]
            except KeyError:
                entry = None
            if isinstance(entry, Mapping) and entry.get("of") == of:
                return list(entry["clusters"])
        descriptions = self._read(config)
        # Check mode leaves no trace.
        if not context.CLIARGS.get("check"):
            self._cache[key] = {"of": of, "clusters": descriptions}
        return descriptions

    def _read(self, config: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the description of each cluster, sorted by name."""
        declared, problems = _from_manifests(config["resources"])
        live, control_problems = _from_control(config["control"], alone=not config["resources"])
        problems += control_problems
        conflicts = [
            Problem(
                "is on the control cluster too, where it differs and was not put by this collection",
                hint="Delete one of the two, or make them equal",
                ref=cluster.ref,
            )
            for ref, cluster in sorted(declared.items())
            if ref in live and _conflict(cluster, live[ref])
        ]
        # It is unknown which of the two is right, so this is no matter of strictness.
        self._report([*problems, *conflicts], fatal=bool(conflicts))
        return _hosts({**live, **declared}.values())

    def _report(self, problems: Iterable[Problem], *, fatal: bool) -> None:
        lines = [str(problem) for problem in problems]
        if lines and (fatal or self.get_option("strict")):
            count = "1 error" if len(lines) == 1 else f"{len(lines)} errors"
            raise AnsibleParserError(f"{count} in the clusters of the fleet:\n" + "\n".join(lines))
        for line in first_lines(lines, _MOST_WARNINGS, "and {} more; the option strict fails with all of them"):
            self.display.warning(line)

    def _refuse_names(self, control_host: str, descriptions: list[dict[str, Any]]) -> None:
        for cluster in descriptions:
            name, kind = cluster["name"], cluster["kind"]
            if name == control_host:
                raise AnsibleParserError(
                    f"{kind} {name} has the name of the host in {CONTROL_PLANE}: set control_host to another name"
                )
            if name in _TAKEN:
                raise AnsibleParserError(
                    f"{kind} {name} cannot be a host, as Ansible uses that name itself: write the inventory "
                    f"by hand, where a host of another name has fleet_cluster: {name}"
                )

    def _fill(self, config: Mapping[str, Any], descriptions: list[dict[str, Any]]) -> None:
        for group in (CONTROL_PLANE, WORKLOAD_CLUSTERS):
            self.inventory.add_group(group)
            # Set on groups, not on hosts, so that files in group_vars have priority.
            self.inventory.set_variable(group, "ansible_connection", "local")
            interpreter = trust_as_template("{{ ansible_playbook_python }}")
            self.inventory.set_variable(group, "ansible_python_interpreter", interpreter)
            if config["build"]:
                self.inventory.set_variable(group, "fleet_build", config["build"])
        if config["resources"]:
            self.inventory.set_variable(CONTROL_PLANE, "fleet_resources", config["resources"])
        if config["control"]:
            self.inventory.set_variable(CONTROL_PLANE, "fleet_control", config["control"])
        self.inventory.add_host(config["control_host"], group=CONTROL_PLANE)
        for cluster in descriptions:
            self._add(cluster, bool(config["control"]))

    def _add(self, cluster: Mapping[str, Any], control: bool) -> None:
        name = cluster["name"]
        self.inventory.add_host(name, group=WORKLOAD_CLUSTERS)
        variables: dict[str, Any] = without_templates(
            {
                "fleet_cluster": name,
                "fleet_source": cluster["source"],
                "fleet_region": cluster["region"],
                "fleet_labels": dict(cluster["labels"]),
            }
        )
        if cluster["credentials"]:
            variables["fleet_credentials"] = cluster["credentials"]
        if cluster["connection"]:
            variables["fleet_connection"] = dict(cluster["connection"])
        for key, value in variables.items():
            self.inventory.set_variable(name, key, value)
        target = connections.target_of(cluster["connection"], control)
        host_variables = {**variables, "fleet_target": target}
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), host_variables, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), host_variables, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), host_variables, name, strict=strict)
        composed = self.inventory.get_host(name).get_vars().get("fleet_target", target)
        for group in _groups(cluster):
            self.inventory.add_host(name, group=self.inventory.add_group(group))
        if composed in (connections.KUBERNETES, connections.DIRECTORY):
            group = self.inventory.add_group(f"target_{composed}")
            self.inventory.set_variable(group, "fleet_target", str(composed))
            self.inventory.add_host(name, group=group)


def _groups(cluster: Mapping[str, Any]) -> list[str]:
    """Return the groups of a cluster by its description."""
    names = [f"source_{cluster['source'].lower()}"]
    if cluster["region"]:
        names.append(f"region_{cluster['region']}")
    names += [f"label_{key}_{value}" if value else f"label_{key}" for key, value in sorted(cluster["labels"].items())]
    return [to_safe_group_name(name, force=True, silent=True) for name in names]


def _hosts(clusters: Iterable[Cluster]) -> list[dict[str, Any]]:
    """Return the description of each host, sorted by name."""
    clusters_by_name: dict[str, list[Cluster]] = {}
    for cluster in clusters:
        clusters_by_name.setdefault(cluster.name, []).append(cluster)
    return [_host(clusters_by_name[name]) for name in sorted(clusters_by_name)]


def _host(same: list[Cluster]) -> dict[str, Any]:
    """Return the description of all resources with one name. The module cloud_cluster_info refuses some of several."""
    same.sort(key=lambda cluster: (KINDS.index(cluster.kind), cluster.namespace != SYSTEM_NAMESPACE, cluster.namespace))
    described = _described(same[0])
    if described["kind"] != KINDS[0] or len(same) == 1 or same[1].namespace != SYSTEM_NAMESPACE:
        return described
    secret = described["connection"].get("secret") or {}
    if described["source"] == "Existing" and secret.get("name") == kubeconfig_secret(described["name"]):
        composed = _described(same[1])
        described.update({key: composed[key] for key in ("connection", "credentials", "region")})
    return described


def _described(cluster: Cluster) -> dict[str, Any]:
    """Return the description of a cluster for variables, groups and the cache. It contains no secrets."""
    return {
        "kind": cluster.kind,
        "name": cluster.name,
        "source": _source(cluster),
        "region": _region(cluster),
        "labels": _labels(cluster),
        "connection": connections.of_manifest(cluster),
        "credentials": _credentials(cluster),
    }


def _credentials(cluster: Cluster) -> str:
    """Return the name of the credentials that create the cluster, or "" without one."""
    block: Any = cluster.spec
    if isinstance(cluster, api.InferenceCluster):
        block = getattr(cluster.spec.cluster, cluster.spec.cluster.source.lower(), None)
    credentials = getattr(block, "credentials", None)
    return str(credentials.name) if credentials else ""


def _source(cluster: Cluster) -> str:
    if isinstance(cluster, api.InferenceCluster):
        return cluster.spec.cluster.source
    return registry.BY_KIND[cluster.kind].source


def _labels(cluster: Cluster) -> dict[str, str]:
    """Return the labels that users set on the cluster, sorted, without the labels of copies on the control cluster."""
    internal_labels = (MANAGED_BY_LABEL, PUBLISHED_LABEL)
    return {key: value for key, value in sorted(cluster.labels.items()) if key not in internal_labels}


def _region(cluster: Cluster) -> str:
    """Return the region as the cloud names it. For sources without a region, return the region label."""
    if not isinstance(cluster, api.InferenceCluster):
        return cluster.spec.region
    source = cluster.spec.cluster.source
    field = "region" if source in registry.BY_SOURCE else _REGION_FIELDS.get(source)
    block = getattr(cluster.spec.cluster, source.lower(), None)
    region = getattr(block, field, "") if field else ""
    return str(region or cluster.labels.get(REGION_LABEL, ""))


def _from_manifests(paths: list[str]) -> tuple[dict[Ref, Cluster], list[Problem]]:
    """Return the clusters below `paths`, and their problems."""
    sources, problems = manifests.read(paths)
    # A fleet has many more deployments than clusters, and their validation would be slow. InferenceClasses are also
    # read, so that the references of invalid clusters are validated correctly.
    loaded = load(source for source in sources if _OF_CLUSTERS.search(source.data))
    problems += [
        problem
        for problem in loaded.errors
        if problem.ref is None or (problem.ref.kind in KINDS and problem.ref in loaded.invalid)
    ]
    all_resources = (*loaded.resources, *loaded.unresolved)
    return {resource.ref: resource for resource in all_resources if isinstance(resource, Cluster)}, problems


def _from_control(control: Mapping[str, Any], *, alone: bool) -> tuple[dict[Ref, Cluster], list[Problem]]:
    """Return the clusters on the control cluster, without composed objects of InferenceClusters, and their problems.

    If manifests also define clusters, the control cluster does not need the CRDs of the fleet, because the first run of
    a fleet creates them. Raise AnsibleParserError.
    """
    if not control:
        return {}, []
    # An inventory of manifests does not need these modules.
    from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.cluster_options import connection
    from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import connect
    from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError

    try:
        with connect(connection("control", control), write_cache=not context.CLIARGS.get("check")) as client:
            items = [item for kind in KINDS for item in _items(client, kind, alone=alone)]
    except ApiError as error:
        raise AnsibleParserError(str(error)) from None
    live_clusters: dict[Ref, Cluster] = {}
    problems: list[Problem] = []
    for item in items:
        try:
            cluster = api.parse(item)
        except api.InvalidResource as error:
            name = (item.get("metadata") or {}).get("name", "")
            location = f"control cluster, {item.get('kind')} {name}"
            problems.extend(problem.at(file=location, line=None, document=None) for problem in error.problems)
            continue
        if isinstance(cluster, Cluster) and not is_composed(item):
            live_clusters[cluster.ref] = cluster
    return live_clusters, problems


def _items(client: Any, kind: str, *, alone: bool) -> list[dict[str, Any]]:
    """Return all objects of a kind. Kinds other than InferenceCluster can be unreadable. Raise ApiError."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden, NotServed

    try:
        return list(client.list(api.KINDS[kind].group_version(), kind).items)
    except (Forbidden, NotServed) as error:
        if kind == KINDS[0] and (alone or isinstance(error, Forbidden)):
            raise
        return []


def _conflict(written: Cluster, live: Cluster) -> bool:
    """Return True if two descriptions of one cluster differ, and the newer description is unknown."""
    if live.labels.get(MANAGED_BY_LABEL) == MANAGED_BY:
        return False
    return written.spec != live.spec or _labels(written) != _labels(live)
