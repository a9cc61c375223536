# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""CustomResourceDefinitions of what gateways in mode Model are made of.

Those of Envoy Gateway, cert-manager and trust-manager have the schemas that the projects publish. The AI gateway
publishes its own as a chart only, so its kinds take any fields here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

TESTS = Path(__file__).resolve().parents[1]
AI = TESTS / "stack/charts/ai-gateway-crds-helm/definitions.yaml"
GROUPS = ("cert-manager.io", "gateway.envoyproxy.io", "trust.cert-manager.io")
_ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

Object = dict[str, Any]


def definitions() -> list[Object]:
    """Return the definitions, those of the AI gateway last."""
    return [*_published(), *of_the_ai_gateway()]


def of_the_ai_gateway() -> list[Object]:
    """Return the definitions of the AI gateway's kinds."""
    found = []
    for each in yaml.safe_load(AI.read_text())["definitions"]:
        plural, _, group = each["name"].partition(".")
        served = [
            _version(name, {"type": "object", "properties": {"spec": _ANY, "status": _ANY}})
            for name in each["versions"]
        ]
        found.append(_definition(group, each["kind"], plural, "Namespaced", served))
    return found


def _published() -> Iterator[Object]:
    for path in sorted((TESTS / "data/schemas").glob("*.json")):
        schema = json.loads(path.read_text())
        if schema["group"] in GROUPS:
            served = [_version(schema["version"], schema["schema"])]
            yield _definition(schema["group"], schema["kind"], schema["plural"], schema["scope"], served)


def _version(name: str, schema: Object) -> Object:
    return {
        "name": name,
        "served": True,
        "storage": False,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }


def _definition(group: str, kind: str, plural: str, scope: str, versions: list[Object]) -> Object:
    versions[0]["storage"] = True
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": scope,
            "versions": versions,
        },
    }
