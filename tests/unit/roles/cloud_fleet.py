# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet of clusters in a cloud that is acted, for the tests of the roles that make such clusters."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import HEADER
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.cloud.double import CloudDouble
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import replica

MANIFESTS = ansible_run.ROOT / "tests" / "data" / "manifests"
CONCEPTS = MANIFESTS / "concepts"


@dataclass
class Ran:
    """Output and effect of a run. `changed` and `failed` are sums over hosts, `calls` those of the cloud."""

    output: str
    changed: int
    failed: int
    calls: list[dict[str, Any]]

    def ok(self) -> Ran:
        assert self.failed == 0, self.output
        return self

    def counts(self) -> dict[str, int]:
        """Operations that changed something, and how often each did."""
        done = [call["operation"] for call in self.calls if call["mutating"] and not call["error"]]
        return {operation: done.count(operation) for operation in sorted(set(done))}

    @property
    def mutating(self) -> list[str]:
        """The calls that change something, SERVICE.OPERATION."""
        return [f"{call['service']}.{call['operation']}" for call in self.calls if call["mutating"]]


@dataclass
class CloudFleet(ABC):
    """A fleet of one cluster and those `beside` it, whose cloud is a double. `given`: what its runs have by default,
    unless they say otherwise."""

    host: ClassVar[str]
    resources: ClassVar[tuple[Path, ...]]

    folder: Path
    cloud: CloudDouble
    given: dict[str, Any] = field(default_factory=dict)

    @abstractmethod
    def at(self, cluster: str) -> dict[str, Any]:
        """The connection to a cluster that the fleet makes."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Variables that lead to the double."""

    def secrets(self) -> list[str]:
        """Texts that no output may have."""
        return []

    def another(self, name: str, old: str = "", new: str = "") -> str:
        """A manifest of the same cluster by another name, with another text in place of `old`; its path."""
        path = self.folder / f"{name}.yaml"
        text = self.resources[0].read_text().replace(self.host, name)
        assert old in text, old
        path.write_text(text.replace(old, new))
        return str(path)

    def built(self, *clusters: str) -> str:
        """A build folder with a ModelReplica on each of these clusters."""
        build = self.folder / "build"
        place = build / "control" / "namespaces" / "ml-team"
        place.mkdir(parents=True)
        for cluster in clusters:
            value = replica(cluster)
            value["metadata"]["name"] = cluster
            (place / f"modelreplica-{cluster}.yaml").write_text(HEADER + to_yaml(value))
        return str(build)

    def run(
        self,
        *arguments: str,
        playbook: str = "provision",
        host: Any = None,
        beside: Mapping[str, Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> Ran:
        """Run a playbook with these variables of the fleet and of its host. `beside` are more hosts; the cluster of one
        that has no manifest is another one of the same."""
        for name in beside or {}:
            if not (self.folder / f"{name}.yaml").exists():
                self.another(name)
        resources = [*self.resources, *(self.folder / f"{name}.yaml" for name in beside or {})]
        given = {"fleet_resources": [str(path) for path in resources], **self.given, **variables}
        hosts = {
            name: {"fleet_target": "kubernetes", "fleet_connection": self.at(name), **its}
            for name, its in {self.host: host or {}, **(beside or {})}.items()
        }
        inventory = self.folder / "hosts.json"
        groups = {"control_plane": {"hosts": {"control": {}}}, "workload_clusters": {"hosts": hosts}}
        inventory.write_text(json.dumps({"all": {"vars": given, "children": groups}}))
        self.cloud.forget_calls()
        out, errors = ansible_run.run(
            "ansible-playbook",
            f"modelplane.fleet.{playbook}",
            "-i",
            str(inventory),
            *arguments,
            cwd=self.folder,
            **self.environment(),
        )
        recap = re.findall(r"changed=(\d+).*failed=(\d+)", out)
        assert recap, out + errors
        changed, failed = (sum(map(int, counts)) for counts in zip(*recap, strict=True))
        assert not [secret for secret in self.secrets() if secret in out + errors]
        message = " ".join((out + errors).split())
        return Ran(message, changed, failed, self.cloud.calls())


def variables_are_documented(role: str) -> None:
    """Every variable of a role that makes clusters is documented for every entry point, with its default."""
    folder = ansible_run.ROOT / "roles" / role
    defaults = yaml.safe_load((folder / "defaults" / "main.yml").read_text())
    specs = yaml.safe_load((folder / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    assert set(specs) == {"main", "absent", "check", "read", "release", "vars"}
    for entry in ("main", "absent", "check", "read", "release"):
        assert set(specs[entry]["options"]) == set(defaults) | {f"{role}_object"}
        assert all(option["description"] for option in specs[entry]["options"].values())
    options = specs["main"]["options"]
    for name, value in defaults.items():
        templated = isinstance(value, (str, list)) and "{{" in json.dumps(value)
        if not templated and name != f"{role}_components":
            assert options[name].get("default") == value, name
    assert set(options[f"{role}_states"]["options"]) == {each["key"] for each in defaults[f"{role}_components"]}
