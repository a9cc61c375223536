# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet of one cluster in a cloud that is acted, for the tests of the roles that make such clusters."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.cloud.double import CloudDouble

MANIFESTS = ansible_run.ROOT / "tests" / "data" / "manifests"
CONCEPTS = MANIFESTS / "concepts"


@dataclass
class Ran:
    """What a run said and did. `calls` are those of the cloud."""

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
    """A fleet of one cluster, whose cloud is a double. `given`: what its runs have by default, unless they say
    otherwise."""

    host: ClassVar[str]
    connection: ClassVar[dict[str, Any]]
    resources: ClassVar[tuple[Path, ...]]

    folder: Path
    cloud: CloudDouble
    given: dict[str, Any] = field(default_factory=dict)

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Variables that lead to the double."""

    def secrets(self) -> list[str]:
        """What no output may have."""
        return []

    def run(self, *arguments: str, playbook: str = "provision", host: Any = None, **variables: Any) -> Ran:
        given = {"fleet_resources": [str(path) for path in self.resources], **self.given, **variables}
        hosts = {
            self.host: {"fleet_target": "kubernetes", "fleet_connection": self.connection, **(host or {})},
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
        recap = re.search(r"changed=(\d+).*failed=(\d+)", out)
        assert recap, out + errors
        assert not [secret for secret in self.secrets() if secret in out + errors]
        told = " ".join((out + errors).split())
        return Ran(told, int(recap[1]), int(recap[2]), self.cloud.calls())


def variables_are_documented(role: str) -> None:
    """Every variable of a role that makes clusters is documented for every entry point, with its default."""
    folder = ansible_run.ROOT / "roles" / role
    defaults = yaml.safe_load((folder / "defaults" / "main.yml").read_text())
    specs = yaml.safe_load((folder / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    assert set(specs) == {"main", "absent", "seen", "known"}
    for entry in ("main", "absent", "seen"):
        assert set(specs[entry]["options"]) == set(defaults) | {f"{role}_object"}
        assert all(option["description"] for option in specs[entry]["options"].values())
    options = specs["main"]["options"]
    for name, value in defaults.items():
        templated = isinstance(value, (str, list)) and "{{" in json.dumps(value)
        if not templated and name != f"{role}_components":
            assert options[name].get("default") == value, name
    assert set(options[f"{role}_states"]["options"]) == {each["key"] for each in defaults[f"{role}_components"]}
