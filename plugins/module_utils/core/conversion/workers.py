# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of a `workers` block with its parallelism axes and device requests to an engine with members."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import topology
from ..text import short_value
from . import launch
from .notes import Notes, given_entries
from .template import engine_template, pod_template

ROLE_FIELDS = ("nodeSelector", "workers", "engine")
ANY_NVIDIA_GPU = 'device.driver == "gpu.nvidia.com"'

FORMER_FIELDS = {
    "parallelism": "Write the axes into workers.topology: {tensor, pipeline, data, dataLocal}.",
    "poolSelector": "Request the devices of a node in nodeSelector.devices.",
}


@dataclass(frozen=True)
class Role:
    """Converter of one `workers` block and its device requests to one engine.

    source_path: path of the block with `workers`.
    canonical: path of the engine.
    """

    name: str
    phase: str | None
    source_path: str
    canonical: str
    cached: bool

    def engine(self, block: Any, notes: Notes) -> dict[str, Any] | None:
        """Return the engine, None after errors."""
        if not isinstance(block, dict):
            notes.error(self.source_path, "must be a mapping", short_value(block))
            return None
        # The engine is built in place, and other documents might share parts of the block through YAML aliases.
        engine_fields = given_entries(copy.deepcopy(block))
        self._block_fields(engine_fields, notes)
        workers = engine_fields.get("workers")
        if not isinstance(workers, dict):
            if workers is not None:
                notes.error(f"{self.source_path}.workers", "must be a mapping", short_value(workers))
            return None
        workers = given_entries(workers)
        for name in workers:
            if name not in ("count", "topology", "template", "resources"):
                notes.unknown(f"{self.source_path}.workers", name, ("count", "topology", "template"))
        shape = self._shape(workers, notes)
        copies = self._copies(workers, notes)
        template = self._template(workers, engine_fields.get("engine"), notes)
        selector = self._node_selector(
            engine_fields.get("nodeSelector"), shape[1].gpus_per_node if shape else None, notes
        )
        if shape is None or template is None:
            return None
        members = self._members(*shape, selector, template, notes)
        self._trace(len(members), engine_fields, notes)
        phase = {"phase": self.phase} if self.phase else {}
        return {"name": self.name, **phase, "copies": copies, "members": members}

    def _block_fields(self, engine_fields: Mapping[str, Any], notes: Notes) -> None:
        for name in engine_fields:
            if name in ("parallelism", "poolSelector"):
                notes.error(f"{self.source_path}.{name}", "is a field of an earlier design", hint=FORMER_FIELDS[name])
            elif name not in ROLE_FIELDS:
                notes.unknown(self.source_path, name, ("nodeSelector", "workers"))
        required = ("workers", "nodeSelector") if self.phase == "Prefill" else ("workers",)
        for name in required:
            if name not in engine_fields:
                notes.error(
                    f"{self.source_path}.{name}",
                    f"{self.source_path} needs {name}",
                    hint="Prefill inherits nothing from the decode side." if self.phase == "Prefill" else "",
                )

    def _shape(self, workers: Mapping[str, Any], notes: Notes) -> tuple[topology.Axes, topology.Shape] | None:
        block = workers.get("topology")
        path = f"{self.source_path}.workers.topology"
        try:
            resolved = topology.resolve(block)
        except topology.TopologyError as error:
            notes.below(path, error)
            return None
        topology_fields = given_entries(block) if isinstance(block, dict) else {}
        if "strategy" in topology_fields:
            notes.warn(f"{path}.strategy", "is no longer needed: the axes determine it", "Leave it out.")
        if "instances" in topology_fields:
            notes.older(f"{path}.instances", f"{self.source_path}.workers.count")
        if resolved[0].data > 1 and "dataLocal" not in topology_fields:
            notes.warn(
                f"{path}.data",
                f"without dataLocal each of the {resolved[0].data} data-parallel ranks takes a node of its own",
                "Give dataLocal: how many ranks share a node (1 keeps it as it is).",
            )
        return resolved

    def _copies(self, workers: Mapping[str, Any], notes: Notes) -> int:
        try:
            return topology.copies(workers)
        except topology.TopologyError as error:
            notes.below(f"{self.source_path}.workers", error)
            return 1

    def _template(self, workers: Mapping[str, Any], engine: Any, notes: Notes) -> dict[str, Any] | None:
        """Return the validated pod template of a member."""
        path = f"{self.source_path}.workers.template"
        template = workers.get("template")
        if template is None and engine is None:
            notes.error(path, "template is missing", hint="It holds containers, with the one named engine.")
            return None
        if template is not None and engine is not None:
            notes.error(f"{self.source_path}.engine", f"is an earlier spelling of {path}, and both are given")
            return None
        if engine is not None:
            member_template = engine_template(engine, f"{self.source_path}.engine", notes)
            if member_template is not None:
                notes.older(f"{self.source_path}.engine", path)
        else:
            member_template = pod_template(template, path, notes)
        if member_template is not None and "resources" in workers:
            self._resources(workers["resources"], member_template, notes)
        return member_template

    def _resources(self, resources: Any, template: dict[str, Any], notes: Notes) -> None:
        """Convert `workers.resources{cpu, memory}` to requests of the engine container."""
        path = f"{self.source_path}.workers.resources"
        newer = f"{self.source_path}.workers.template.spec.containers[0].resources.requests"
        container = template["spec"]["containers"][0]
        if not isinstance(resources, dict):
            notes.error(path, "must be a mapping", short_value(resources))
            return
        for name in resources:
            if name not in ("cpu", "memory"):
                notes.unknown(path, name, ("cpu", "memory"))
        if container.get("resources") is not None:
            notes.error(path, f"is an earlier spelling of {newer}, and both are given", hint="Keep the latter.")
            return
        notes.older(path, newer)
        requests = {name: _quantity(value) for name, value in given_entries(resources).items()}
        if requests:
            container["resources"] = {"requests": requests}

    def _node_selector(self, selector: Any, gpus: int | None, notes: Notes) -> Any:
        """Return the device requests of one node, with the number of GPUs that the topology requires."""
        path = f"{self.source_path}.nodeSelector"
        if selector is None:
            if self.phase != "Prefill":
                notes.warn(path, "is missing: any NVIDIA GPU matches", "Request GPUs in nodeSelector.devices.")
            return {"devices": [_gpu_request(gpus, ANY_NVIDIA_GPU)]}
        if not isinstance(selector, dict):
            notes.error(path, "must be a mapping", short_value(selector))
            return {}
        if selector.get("cel") is not None:
            return self._selector_text(selector, gpus, notes)
        selector = {name: value for name, value in selector.items() if name != "cel"}
        devices = selector.get("devices")
        if gpus and isinstance(devices, list) and all(isinstance(device, dict) for device in devices):
            self._gpu_count(devices, gpus, notes)
        return selector

    def _selector_text(self, selector: dict[str, Any], gpus: int | None, notes: Notes) -> Any:
        path = f"{self.source_path}.nodeSelector.cel"
        text = selector["cel"]
        if selector.get("devices") is not None:
            notes.error(
                path, "is an earlier spelling of nodeSelector.devices, and both are given", hint="Keep devices."
            )
        elif not isinstance(text, str):
            notes.error(path, "must be text", short_value(text))
        elif not _selects_devices(text):
            notes.error(
                path,
                "is an expression over a node's attributes and capacity, not over one device",
                short_value(text),
                'Write nodeSelector.devices: [{name: gpu, selectors: [{cel: \'device.capacity["gpu.nvidia.com"]'
                '.memory.compareTo(quantity("70Gi")) >= 0\'}]}].',
            )
        else:
            notes.older(path, f"{self.source_path}.nodeSelector.devices")
        other_fields = {name: value for name, value in selector.items() if name not in ("cel", "devices")}
        return {**other_fields, "devices": [_gpu_request(gpus, text)]}

    def _gpu_count(self, devices: list[dict[str, Any]], gpus: int, notes: Notes) -> None:
        path = f"{self.source_path}.nodeSelector.devices"
        gpu_indexes = [index for index, device in enumerate(devices) if device.get("name") == "gpu"]
        candidates = gpu_indexes or (list(range(len(devices))) if len(devices) == 1 else [])
        if not candidates:
            counts = [device.get("count") for device in devices]
            if devices and not any(count == gpus and not isinstance(count, bool) for count in counts):
                notes.error(
                    path,
                    f"none of the requests is named gpu, so the one for the {gpus} GPUs per node is not known",
                    hint="Name the GPU request gpu.",
                )
            return
        device = devices[candidates[0]]
        count = device.get("count")
        if count is None:
            device["count"] = gpus
        elif isinstance(count, bool) or not isinstance(count, int) or count != gpus:
            notes.error(
                f"{path}[{candidates[0]}].count",
                f"differs from the {gpus} GPUs per node that the topology needs (tensor * dataLocal)",
                short_value(count),
                "Leave the count out, or change the topology.",
            )

    def _members(
        self,
        axes: topology.Axes,
        shape: topology.Shape,
        selector: Any,
        template: dict[str, Any],
        notes: Notes,
    ) -> list[dict[str, Any]]:
        if shape.nodes_per_worker == 1:
            self._decode_port(template, notes)
            return [{"role": "Standalone", "nodeSelector": selector, "template": template}]
        follower = copy.deepcopy(template)
        (container,) = template["spec"]["containers"]
        if launch.lacks_command(container):
            image = container.get("image")
            if isinstance(image, str) and "vllm" not in image.lower():
                notes.warn(
                    f"{self.source_path}.workers",
                    f"the container has no command: the launch over {shape.nodes_per_worker} nodes is written for vLLM",
                    "Give the container a command when the image is not built on vLLM.",
                )
            gang = launch.Gang(axes, shape.nodes_per_worker, self.cached, self.phase == "Decode")
            template["spec"]["containers"] = [launch.launched(container, gang, leader=True)]
            follower["spec"]["containers"] = [launch.launched(container, gang, leader=False)]
        return [
            {"role": "Leader", "nodeSelector": selector, "template": template},
            {
                "role": "Worker",
                "worker": {"nodes": shape.nodes_per_worker - 1},
                "nodeSelector": copy.deepcopy(selector),
                "template": follower,
            },
        ]

    def _decode_port(self, template: dict[str, Any], notes: Notes) -> None:
        (container,) = template["spec"]["containers"]
        if self.phase != "Decode" or not launch.lacks_command(container):
            return
        if not launch.has_flag(container.get("args") or [], "--port"):
            notes.warn(
                f"{self.source_path}.workers.template",
                "a decode engine must listen on port 8001: the sidecar listens on port 8000",
                "Add --port=8001 to the args of the decode engine.",
            )

    def _trace(self, members: int, engine_fields: Mapping[str, Any], notes: Notes) -> None:
        """Record the source paths of the parts of this engine in `origin`."""
        workers = f"{self.source_path}.workers"
        origin = notes.origin
        origin[self.canonical] = workers
        instances = (
            isinstance(engine_fields["workers"].get("topology"), dict) and engine_fields["workers"].get("count") is None
        )
        origin[f"{self.canonical}.copies"] = f"{workers}.topology.instances" if instances else f"{workers}.count"
        for index in range(members):
            member = f"{self.canonical}.members[{index}]"
            origin[member] = workers
            origin[f"{member}.worker"] = f"{workers}.topology"
            self._trace_selector(f"{member}.nodeSelector", engine_fields.get("nodeSelector"), origin)
            self._trace_template(f"{member}.template", engine_fields, origin)

    def _trace_selector(self, path: str, selector: Any, origin: dict[str, str]) -> None:
        source_path = f"{self.source_path}.nodeSelector"
        origin[path] = source_path
        if isinstance(selector, dict) and selector.get("cel") is not None:
            origin[f"{path}.devices"] = f"{source_path}.cel"
            origin[f"{path}.devices[0].selectors[0].cel"] = f"{source_path}.cel"

    def _trace_template(self, path: str, engine_fields: Mapping[str, Any], origin: dict[str, str]) -> None:
        workers = engine_fields["workers"]
        if engine_fields.get("engine") is not None:
            source_path = f"{self.source_path}.engine"
            for subpath in ("", ".spec", ".spec.containers", ".spec.containers[0]"):
                origin[f"{path}{subpath}"] = source_path
            origin[f"{path}.spec.imagePullSecrets"] = f"{source_path}.imagePullSecrets"
        else:
            source_path = f"{self.source_path}.workers.template"
            origin[path] = source_path
            if workers["template"].get("spec") is None:
                origin[f"{path}.spec"] = source_path
        if workers.get("resources") is not None:
            origin[f"{path}.spec.containers[0].resources"] = f"{self.source_path}.workers.resources"
            origin[f"{path}.spec.containers[0].resources.requests"] = f"{self.source_path}.workers.resources"


def _quantity(value: Any) -> Any:
    """Return a Kubernetes quantity as a string. The older field also accepted integers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _gpu_request(gpus: int | None, expression: Any) -> dict[str, Any]:
    return {"name": "gpu", "count": gpus or 1, "selectors": [{"cel": expression}]}


def _selects_devices(expression: str) -> bool:
    """Return True for an expression on `device`, False for an expression on the maps `attributes[...]`,
    `capacity[...]`."""
    code = re.sub(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", "''", expression)
    names = set(re.findall(r"(?<![\w.])(?<!\.\s)[A-Za-z_]\w*", code))
    return "device" in names and not names & {"attributes", "capacity", "version"}
