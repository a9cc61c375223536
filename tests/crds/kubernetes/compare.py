# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compare the verdicts of `parse` on documents with those of Kubernetes' own code (see README.md)."""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
DEFINITIONS = ROOT / "roles" / "control_plane" / "files" / "crds"

sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS, InvalidResource, parse  # noqa: E402
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import Shape, fields_of  # noqa: E402

# Values that fit somewhere, or nearly.
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 64, 65, 1001, 1.5, 10**18),
    *("", "a", "a.b", "3", "4Gi", "x" * 64, "x" * 254, "system"),
    *("Standalone", "Leader", "Worker", "GKE", "EKS", "Existing", "Nebius", "None", "InfiniBand", "DRA", "Synthetic"),
    *("PrefillDecode", "Prefill", "Decode", "Exists", "Equal", "System", "GPU"),
    *([], {}, ["a"], [{}], [None], {"a": "b"}, {"a b": "c"}, {"a": None}),
]


@dataclass(frozen=True)
class Sent:
    """A document, and what is expected of Kubernetes."""

    name: str
    document: dict[str, Any]
    accepted: bool
    problems: str = ""


def recorded() -> list[Sent]:
    """The documents of tests/data/api, read by the code that the unit tests read them with."""
    path = ROOT / "tests" / "unit" / "plugins" / "module_utils" / "core" / "api" / "conftest.py"
    spec = importlib.util.spec_from_file_location("documents", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    documents = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(documents)
    minimal = documents.read_minimal()
    sent = [Sent(f"minimal {kind}", document, True) for kind, document in minimal.items()]
    for case in documents.read_cases():
        document = documents.changed(minimal[case["kind"]], case["change"])
        sent.append(Sent(f"{case['kind']} {case['rule']}", document, not case.get("crd", True)))
    return sent


def known_keys() -> list[str]:
    """The wire names of all fields of all kinds."""
    keys: set[str] = set()
    waiting: list[Shape | None] = [Shape("object", model=kind) for kind in KINDS.values()]
    seen = set()
    while waiting:
        shape = waiting.pop()
        if shape is None:
            continue
        waiting.append(shape.item)
        if shape.model is not None and shape.model not in seen:
            seen.add(shape.model)
            keys |= fields_of(shape.model).keys()
            waiting.extend(field.shape for field in fields_of(shape.model).values())
    return sorted(keys)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [(value, key) for key, _item in items] + [place for _key, item in items for place in places(item)]


def mutate(spec: Any, chance: random.Random, keys: list[str]) -> None:
    """Change one thing in a spec."""
    found = places(spec)
    if not found:
        return
    container, key = chance.choice(found)
    what = chance.random()
    if what < 0.25:
        del container[key]
    elif what < 0.6:
        container[key] = copy.deepcopy(chance.choice(VALUES))
    elif what < 0.7:
        container[key] = chance.choice([[container[key]], {"a": container[key]}])
    elif isinstance(container, list):
        container.append(copy.deepcopy(container[key]))
    else:
        container[chance.choice(keys)] = copy.deepcopy(chance.choice(VALUES))


def mutated(count: int, seed: int) -> list[Sent]:
    """Randomly changed documents, with the verdict of `parse`."""
    chance = random.Random(seed)
    keys = known_keys()
    sources = [
        document
        for folder in ("api", "manifests")
        for path in sorted((ROOT / "tests" / "data" / folder).rglob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if isinstance(document, dict) and document.get("kind") in KINDS and "spec" in document
    ]
    sent = []
    for number in range(count):
        document = copy.deepcopy(chance.choice(sources))
        for _ in range(chance.choice([1, 1, 1, 2, 3])):
            part = chance.choice(["spec", "spec", "status"])
            mutate(document.get(part, document["spec"]), chance, keys)
        try:
            parse(document)
        except InvalidResource as invalid:
            sent.append(Sent(f"document {number}", document, False, str(invalid)))
        else:
            sent.append(Sent(f"document {number}", document, True))
    return sent


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Compare the verdicts of parse with those of Kubernetes.")
    parser.add_argument("checker", help="the program built from main.go")
    parser.add_argument("--documents", type=int, default=2000, help="how many randomly changed documents")
    parser.add_argument("--seed", type=int, default=0, help="seed of the changes")
    arguments = parser.parse_args()
    sent = recorded() + mutated(arguments.documents, arguments.seed)
    finished = subprocess.run(
        [arguments.checker, str(DEFINITIONS)],
        input="".join(json.dumps(item.document) + "\n" for item in sent),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in finished.stdout.splitlines()]
    definitions, verdicts = answers[: len(KINDS)], answers[len(KINDS) :]
    wrong = [f"{answer['name']}: {answer['errors']}" for answer in definitions if answer["errors"]]
    for item, verdict in zip(sent, verdicts, strict=True):
        if item.accepted == bool(verdict["errors"]):
            said = verdict["errors"] or "accepted"
            wrong.append(f"{item.name}: expected {item.problems or item.accepted}, Kubernetes: {said}")
    print("\n".join(wrong))
    print(f"{len(sent)} documents, {sum(item.accepted for item in sent)} of them valid, {len(wrong)} disagreements")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
