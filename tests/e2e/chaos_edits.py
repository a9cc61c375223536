# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Random edits of a fleet of `fleets.cluster`: manifests, fleet settings, and nodes.

The same seed produces the same edits if the same runs are refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ansible_collections.modelplane.fleet.tests.e2e import fleets

FITTING = {"small": fleets.SMALL_GPU, "any": fleets.ANY_GPU, "large": fleets.LARGE_GPU}
UNFIT = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("200Gi")) >= 0'
BAD_TAG = "missing"
DELAY = "2s"
LOSES_STATE = False
"""Switch for edits that delete the build directory, so that runs adopt replicas."""
STICKS_IN_DELETION = False
"""Switch for edits that add finalizers, so that runs report terminating objects."""

_CLUSTERS = ("east", "west")
_POOLS = {"gpu": 3, "large": 2}
_BOUNDS: Sequence[Mapping[str, int | str]] = (
    {},
    {"maxUnavailable": 0, "maxSurge": 1},
    {"maxUnavailable": 1, "maxSurge": 0},
    {"maxUnavailable": 1, "maxSurge": 1},
    {"maxUnavailable": "50%", "maxSurge": "100%"},
    {"maxSurge": "50%"},
)


@dataclass
class Model:
    """ModelDeployment that edits change."""

    name: str
    replicas: int
    selector: str = "small"
    cluster: str = ""
    tag: str = "v0"
    argument: int = 0
    copies: int = 1
    devices: int = 1
    bounds: Mapping[str, int | str] = field(default_factory=dict)

    def manifest(self) -> str:
        spec = {"rollout": dict(self.bounds)} if self.bounds else {}
        more: dict[str, Any] = {}
        if self.cluster:
            more["clusterSelector"] = {"matchLabels": {"modelplane.ai/cluster": self.cluster}}
        text = fleets.deployment(
            self.name,
            self.replicas,
            copies=self.copies,
            tag=self.tag,
            spec=spec,
            delay=DELAY,
            selector=FITTING.get(self.selector, UNFIT),
            devices=self.devices,
            **more,
        )
        document = json.loads(text.removeprefix("---"))
        (member,) = document["spec"]["template"]["spec"]["engines"][0]["members"]
        member["template"]["spec"]["containers"][0]["args"] = [f"--max-num-seqs={64 + self.argument}"]
        return f"---\n{json.dumps(document, indent=2)}\n"


@dataclass
class Desired:
    """Manifests and settings of the fleet.

    deleted: deleted deployments.
    services: deployments that each ModelService selects.
    pools: names and node counts of the pools of each cluster, in the order of `_POOLS`.
    """

    models: dict[str, Model]
    services: dict[str, tuple[str, ...]]
    deleted: dict[str, Model] = field(default_factory=dict)
    pools: dict[str, list[tuple[str, int]]] = field(
        default_factory=lambda: {name: list(_POOLS.items()) for name in _CLUSTERS}
    )
    taints: dict[str, str] = field(default_factory=dict)
    cordoned: frozenset[tuple[str, str]] = frozenset()
    settings: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Desired:
        return copy.deepcopy(self)

    def clusters_text(self) -> str:
        parts = [fleets.CLASSES]
        for name in _CLUSTERS:
            taints = [{"key": "chaos", "effect": self.taints[name]}] if name in self.taints else []
            document = json.loads(fleets.cluster(name, *taints).removeprefix("---"))
            for pool, (written, count) in zip(document["spec"]["nodePools"], self.pools[name], strict=True):
                pool |= {"name": written, "nodeCount": count}
            parts.append(f"---\n{json.dumps(document, indent=2)}\n")
        return "".join(parts)

    def models_text(self) -> str:
        services = (fleets.service(name, *selected) for name, selected in sorted(self.services.items()))
        return "".join([*(model.manifest() for __, model in sorted(self.models.items())), *services])

    def replicas_of(self, service: str) -> int:
        """Return the desired number of replicas of a service."""
        return sum(self.models[name].replicas for name in self.services[service] if name in self.models)


def first() -> Desired:
    models = (Model("chat", 3), Model("code", 2, cluster="west"), Model("large", 2, "large"), Model("solo", 1))
    services = {"chat": ("chat",), "code": ("code",), "both": ("chat", "large"), "solo": ("solo",)}
    return Desired({model.name: model for model in models}, services)


Edit = Callable[[Random, Desired], str]


def _model(random: Random, desired: Desired) -> Model:
    return desired.models[random.choice(sorted(desired.models))]


def _image(random: Random, desired: Desired) -> str:
    model = _model(random, desired)
    model.tag = f"v{random.randrange(1, 1000)}"
    return f"image of {model.name}: {model.tag}"


def _bad_image(random: Random, desired: Desired) -> str:
    model = _model(random, desired)
    model.tag = BAD_TAG
    return f"image of {model.name} cannot be pulled"


def _good_images(_random: Random, desired: Desired) -> str:
    bad = [model for __, model in sorted(desired.models.items()) if model.tag == BAD_TAG]
    for model in bad:
        model.tag = f"v{model.argument}-again"
    return f"images can be pulled again: {', '.join(model.name for model in bad)}" if bad else ""


def _flags(random: Random, desired: Desired) -> str:
    model = _model(random, desired)
    model.argument += random.randint(1, 9)
    return f"arguments of {model.name}: {model.argument}"


def _copies(random: Random, desired: Desired) -> str:
    model = _model(random, desired)
    model.copies = 3 - model.copies
    return f"copies of {model.name}: {model.copies}"


def _devices(random: Random, desired: Desired) -> str:
    model = _model(random, desired)
    model.devices = 3 - model.devices
    return f"devices of {model.name}: {model.devices}"


def _selector(random: Random, desired: Desired) -> str:
    model = _model(random, desired)
    model.selector = random.choice(sorted(FITTING))
    return f"selector of {model.name}: {model.selector}"


def _unfit_selector(random: Random, desired: Desired) -> str:
    model = _model(random, desired)
    model.selector = "nothing"
    return f"selector of {model.name} fits nothing"


def _cluster(random: Random, desired: Desired) -> str:
    model = _model(random, desired)
    model.cluster = random.choice(("", *_CLUSTERS))
    return f"cluster of {model.name}: {model.cluster or 'any'}"


def _replicas(random: Random, desired: Desired) -> str:
    model = _model(random, desired)
    model.replicas = random.choice((0, 1, 2, 2, 3, 3, 4))
    return f"replicas of {model.name}: {model.replicas}"


def _bounds(random: Random, desired: Desired) -> str:
    model = _model(random, desired)
    model.bounds = random.choice(_BOUNDS)
    return f"rollout of {model.name}: {dict(model.bounds)}"


def _delete(random: Random, desired: Desired) -> str:
    if desired.deleted:
        name, model = desired.deleted.popitem()
        desired.models[name] = model
        return f"{name} is created again"
    model = _model(random, desired)
    desired.deleted[model.name] = desired.models.pop(model.name)
    return f"{model.name} is deleted"


def _renamed_pool(random: Random, desired: Desired) -> str:
    cluster, index = random.choice(_CLUSTERS), random.randrange(len(_POOLS))
    name, count = desired.pools[cluster][index]
    before = list(_POOLS)[index]
    after = f"{before}-renamed" if name == before else before
    desired.pools[cluster][index] = (after, count)
    return f"pool {name} of {cluster} is renamed to {after}"


def _resized_pool(random: Random, desired: Desired) -> str:
    cluster, index = random.choice(_CLUSTERS), random.randrange(len(_POOLS))
    name, __ = desired.pools[cluster][index]
    count = random.randint(0, list(_POOLS.values())[index])
    desired.pools[cluster][index] = (name, count)
    return f"pool {name} of {cluster} has {count} nodes"


def _cordon(random: Random, desired: Desired) -> str:
    pool = random.choice(sorted(_POOLS))
    node = (random.choice(_CLUSTERS), f"{pool}-{random.randrange(_POOLS[pool])}")
    desired.cordoned ^= {node}
    return f"node {node[1]} of {node[0]} is {'cordoned' if node in desired.cordoned else 'uncordoned'}"


def _taint(random: Random, desired: Desired) -> str:
    if desired.taints:
        cluster, __ = desired.taints.popitem()
        return f"{cluster} has no taint"
    cluster, effect = random.choice(_CLUSTERS), random.choice(("NoSchedule", "NoExecute"))
    desired.taints[cluster] = effect
    return f"{cluster} has a taint {effect}"


def _service(random: Random, desired: Desired) -> str:
    name = random.choice(sorted(desired.services))
    choices = [("chat",), ("code",), ("chat", "code"), ("chat", "large"), ("large", "code"), ("misspelt",)]
    desired.services[name] = random.choice(choices)
    return f"service {name} selects {' and '.join(desired.services[name])}"


def _setting(random: Random, desired: Desired) -> str:
    desired.settings["fleet_stream_grace"] = random.randrange(100, 300)
    return f"fleet_stream_grace: {desired.settings['fleet_stream_grace']}"


EDITS: Mapping[Edit, int] = {
    _image: 6,
    _bad_image: 2,
    _good_images: 3,
    _flags: 3,
    _copies: 1,
    _devices: 1,
    _selector: 3,
    _unfit_selector: 2,
    _cluster: 3,
    _replicas: 5,
    _bounds: 3,
    _delete: 1,
    _renamed_pool: 3,
    _resized_pool: 3,
    _cordon: 3,
    _taint: 3,
    _service: 2,
    _setting: 1,
}


def edit(random: Random, desired: Desired) -> str:
    """Make a random edit, and return its description."""
    while True:
        (chosen,) = random.choices(list(EDITS), list(EDITS.values()))
        if written := chosen(random, desired):
            return written


def asked(before: Desired, after: Desired) -> set[str]:
    """Return the services that might lose all endpoints: services with fewer than two desired replicas before or
    after the edit, and all services if a cluster is tainted with NoExecute."""
    if any(effect == "NoExecute" and before.taints.get(name) != effect for name, effect in after.taints.items()):
        return set(after.services)
    return {name for name in after.services if min(before.replicas_of(name), after.replicas_of(name)) < 2}
