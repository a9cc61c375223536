# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of what must agree: Prefill and Decode engines, the members of a gang, engines and their ModelCache.

Only values that are certain are compared: servers that are not in the table, values that are known in the pod only, and
scripts of more than one command have no findings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, warning
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers import table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.command_line import CommandLine, is_known
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.flags import axes, block_size
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.table import TENSOR, Server
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import short
from ansible_collections.modelplane.fleet.plugins.module_utils.core.validation.model_gateways import Fleet

_CONFIG = ("--config",)
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = frozenset(("1", "on", "yes", "true"))
_TOKENIZERS = ("--tokenizer", "--tokenizer-path")
# Values that are the default of a flag.
_DEFAULTS = frozenset(("auto", "none", "main"))
_SAME = {"half": "float16", "fp16": "float16", "bf16": "bfloat16"}
_VARIABLES = ("VLLM_ATTENTION_BACKEND", "VLLM_KV_CACHE_LAYOUT")
# Ways of vLLM to several nodes other than --nnodes: data parallelism over nodes.
_DATA_PARALLEL = (
    *("--data-parallel-address", "-dpa", "--data-parallel-start-rank", "-dpr", "--data-parallel-rank", "-dpn"),
    *("--data-parallel-external-lb", "-dpe", "--data-parallel-hybrid-lb", "-dph"),
    *("--data-parallel-size-local", "-dpl"),
)
_EXECUTORS = ("--distributed-executor-backend", "--data-parallel-backend", "-dpb")
_RAY = "ray"
# NixlConnector of vLLM, nixl_connector.py and kv_connector/utils.py of these versions.
_DECODE_MAY_BE_SMALLER = (0, 14)
_BLOCKS_MAY_DIFFER = (0, 11, 1)
_SIDECAR_FLAG = "--kv-connector"


@dataclass(frozen=True)
class _Part:
    """Container of one member of an engine that a known server starts with certain flags."""

    container: Any
    path: str
    title: str
    line: CommandLine
    server: Server

    @classmethod
    def of(cls, member: Any, path: str, title: str) -> _Part | None:
        """Return the container of a member; None if its flags are uncertain. `path` is that of the container."""
        container = member.template.spec.containers[0]
        line = CommandLine.of(container)
        is_certain = line.is_read and not line.unknown_flags and not line.has(_CONFIG)
        return cls(container, path, title, line, line.server) if line.server and is_certain else None

    @cached_property
    def model(self) -> str:
        """Model that the server loads; empty if it is unknown."""
        if flag := self.line.find(self.server.model):
            return flag.value if is_known(flag.value) else ""
        first = next(iter(self.line.arguments), "")
        if self.server.model and first and not first.startswith("-"):
            return first if is_known(first) else ""
        return self.line.variable(self.server.model_variable) or ""

    @property
    def version(self) -> tuple[int, ...]:
        return table.release(table.version(self.server, self.line.image))

    def place(self, names: Sequence[str]) -> str:
        """Return the path of a flag, or of the field for it."""
        return f"{self.path}.{self.line.place(self.line.find(names))}"

    def warn(self, message: str, hint: str, names: Sequence[str] = ()) -> Problem:
        return warning(message, self.place(names), hint)


def engines_agreement(engines: Sequence[Any], base: str, serving: Any) -> Iterator[Problem]:
    """Yield disagreements within gangs, and between the engines of a PrefillDecode pair. `base`: the path that has
    them; `serving`: their routing."""
    leaders: dict[str, _Part | None] = {}
    for index, engine in enumerate(engines):
        parts = {}
        for position, member in enumerate(engine.members):
            path = f"{base}.engines[{index}].members[{position}].template.spec.containers[0]"
            title = f"the {member.role} of engine {engine.name}" if len(engine.members) > 1 else f"engine {engine.name}"
            parts[member.role] = _Part.of(member, path, title)
        if len(engine.members) > 1:
            workers = [member.worker for member in engine.members if member.role == constants.WORKER]
            nodes = 1 + sum(worker.nodes if worker else 1 for worker in workers)
            yield from _gang(parts[constants.LEADER], parts[constants.WORKER], nodes)
        if engine.phase:
            leaders[engine.phase] = parts[constants.LEADER if len(parts) > 1 else engine.members[0].role]
    prefill, decode = leaders.get("Prefill"), leaders.get(constants.DECODE)
    if prefill and decode:
        yield from _pair(prefill, decode, serving)


def _normal(text: str) -> str:
    """Return a value in the form in which it is compared; empty for a default."""
    value = _SAME.get(text.lower(), text)
    if value.startswith("{"):
        try:
            return json.dumps(json.loads(value), sort_keys=True)
        except ValueError:
            return value
    return "" if value.lower() in _DEFAULTS else value


def _differences(one: _Part, other: _Part, groups: Sequence[Sequence[str]]) -> Iterator[Problem]:
    """Yield the flags whose values differ, at the other part."""
    for names in groups:
        values = [part.line.find(names) for part in (one, other)]
        texts = [flag.value if flag else "" for flag in values]
        if all(map(is_known, texts)) and _normal(texts[0]) != _normal(texts[1]):
            said = [f"{names[0]}={short(text)}" if text else f"no {names[0]}" for text in texts]
            message = f"{other.title} has {said[1]}, and {one.title} has {said[0]}"
            yield other.warn(message, f"Set {names[0]} to the same value in both", names)


def _same_server(one: _Part, other: _Part) -> Iterator[Problem]:
    if one.server is not other.server:
        message = f"{other.title} is {other.server.title}, and {one.title} is {one.server.title}"
        yield other.warn(f"{message}: they cannot work together", "Use the same inference server in both")
    elif one.version and other.version and one.version != other.version:
        message = f"{other.title} and {one.title} have different versions of {one.server.title}"
        yield warning(message, f"{other.path}.image", "Use the same image in both", short(other.line.image))


def _same_model(one: _Part, other: _Part) -> Iterator[Problem]:
    if one.model and other.model and one.model != other.model:
        message = f"{other.title} loads {short(other.model)}, and {one.title} loads {short(one.model)}"
        yield other.warn(message, "Name the same model in both", other.server.model)


# --- gangs ---


def _gang(leader: _Part | None, worker: _Part | None, nodes: int) -> Iterator[Problem]:
    for part, is_leader in ((leader, True), (worker, False)):
        if part and part.server.gang and not part.line.is_launch:
            yield from _launch(part, is_leader, nodes)
    if not leader or not worker:
        return
    yield from _same_server(leader, worker)
    yield from _same_model(leader, worker)
    if leader.server is worker.server:
        yield from _differences(leader, worker, leader.server.alike)
        sizes = [axes(part.line) for part in (leader, worker)]
        if sizes[0] is not None and sizes[1] is not None and sizes[0] != sizes[1]:
            said = [
                " ".join(f"{axis}={size}" for axis, size in each.items()) or "no parallelism"
                for each in sizes
                if each is not None
            ]
            message = f"{worker.title} has {said[1]}, and {leader.title} has {said[0]}"
            yield worker.warn(message, "Set the same parallelism in both", tuple(worker.server.axes))


def _launch(part: _Part, is_leader: bool, nodes: int) -> Iterator[Problem]:
    """Yield what a member of a gang lacks to start one server with the others."""
    gang, line, title = part.server.gang, part.line, part.server.title
    address = f"$(MODELPLANE_LEADER_ADDRESS){':5000' if part.server.name == 'sglang' else ''}"
    settings = {"nodes": f"{gang['nodes'][0]}={nodes}", "rank": f"{gang['rank'][0]}=$(MODELPLANE_RANK)"}
    settings["leader"] = f"{gang['leader'][0]}={address}"
    if part.server.name == "vllm" and not line.has(gang["nodes"]):
        if line.has(_DATA_PARALLEL):
            return
        if any(flag.name in _EXECUTORS and flag.value == _RAY for flag in line.flags):
            if "RAY_ADDRESS" not in line.variables and line.has_command:
                message = f"makes {title} use Ray, and nothing starts Ray in {part.title}"
                yield part.warn(message, f"Write {' '.join(settings.values())} without Ray, or start Ray", _EXECUTORS)
            return
    missing = [name for name in settings if not line.has(gang[name])]
    if missing:
        lacks = ", ".join(gang[name][0] for name in missing)
        message = f"lacks {lacks}: {part.title} starts a {title} of its own, and does not join the other pods"
        yield part.warn(message, f"Add {' '.join(settings[name] for name in missing)}")
        return
    if not is_leader and "worker" in gang and not line.has(gang["worker"]):
        message = f"lacks {gang['worker'][0]}: {part.title} starts an API server, which only the Leader may"
        yield part.warn(message, f"Add {gang['worker'][0]}")
    if is_leader and "worker" in gang and line.has(gang["worker"]):
        message = f"has {gang['worker'][0]}: the Leader starts no API server, and gets all requests"
        yield part.warn(message, f"Remove {gang['worker'][0]}", gang["worker"])
    number = line.value(gang["nodes"])
    if number and number != str(nodes):
        message = f"has {gang['nodes'][0]}={short(number)}, and the gang has {nodes} pods"
        yield part.warn(message, f"Write {settings['nodes']}", gang["nodes"])
    rank = line.value(gang["rank"])
    if rank and (rank != "0" if is_leader else rank == "0" or nodes > 2 or rank != "1"):
        message = f"has {gang['rank'][0]}={short(rank)}, and every pod needs its own rank, the Leader 0"
        yield part.warn(message, f"Write {settings['rank']}", gang["rank"])
    host = line.value(gang["leader"]).rpartition(":")[0] or line.value(gang["leader"])
    if host and table.is_loopback(host):
        message = f"has {gang['leader'][0]}={short(host)}, which is another pod on each node"
        yield part.warn(message, f"Write {settings['leader']}", gang["leader"])


# --- pairs ---


def _pair(prefill: _Part, decode: _Part, serving: Any) -> Iterator[Problem]:
    yield from _same_server(prefill, decode)
    yield from _same_model(prefill, decode)
    if prefill.server is not decode.server:
        return
    yield from _differences(prefill, decode, (*prefill.server.alike, prefill.server.names))
    for name in _VARIABLES:
        values = [part.line.variables.get(name, "") for part in (prefill, decode)]
        if None not in values and values[0] != values[1]:
            message = (
                f"{decode.title} has {name}={values[1] or '(unset)'}, and {prefill.title} {values[0] or '(unset)'}"
            )
            yield decode.warn(message, f"Set {name} to the same value in both")
    yield from _blocks(prefill, decode)
    if prefill.server.name == "vllm":
        yield from _vllm_transfer(prefill, decode, serving)
        yield from _tensor(prefill, decode)
    elif prefill.server.name == "sglang":
        yield from _sglang_transfer(prefill, decode)


def _blocks(prefill: _Part, decode: _Part) -> Iterator[Problem]:
    names = prefill.server.block_size
    if not any(part.line.value(names) for part in (prefill, decode)):
        return
    one, other = (block_size(part.line) for part in (prefill, decode))
    is_vllm = prefill.server.name == "vllm"
    may_differ = is_vllm and (decode.version >= _BLOCKS_MAY_DIFFER) and other % one == 0
    if one != other and not may_differ:
        message = f"{decode.title} has blocks of {other} tokens, and {prefill.title} of {one}"
        hint = f"Set the same {names[0]} in both"
        yield decode.warn(f"{message}: it cannot read the KV cache", hint, names)


def _transfer(part: _Part) -> dict[str, Any] | None:
    """Return the KV transfer configuration of a vLLM; empty without one, None if it is unknown."""
    found: dict[str, Any] = {}
    (name,) = part.server.transfer
    for flag in part.line.flags:
        if flag.name == name:
            try:
                value = json.loads(flag.value) if is_known(flag.value) else None
            except ValueError:
                value = None
            if not isinstance(value, dict):
                return None
            found = dict(value)
        elif flag.name.startswith(f"{name}."):
            found[flag.name[len(name) + 1 :].replace("-", "_")] = flag.value if is_known(flag.value) else None
    return None if None in found.values() else found


def _vllm_transfer(prefill: _Part, decode: _Part, serving: Any) -> Iterator[Problem]:
    names = prefill.server.transfer
    configurations = [(part, _transfer(part)) for part in (prefill, decode)]
    for part, configuration in configurations:
        if configuration is None:
            continue
        wrong = "kv_consumer" if part is prefill else "kv_producer"
        role = configuration.get("kv_role")
        if not configuration.get("kv_connector"):
            message = f"{part.title} has no KV connector, so that the KV cache of a prompt is not transferred"
            example = '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_both"}'
            yield part.warn(message, f"Add {example}", names)
        elif role in (None, wrong):
            message = f"{part.title} has {f'kv_role {role}' if role else 'no kv_role'}, with which it "
            message += (
                "does not start" if role is None else f"cannot {'send' if part is prefill else 'receive'} KV caches"
            )
            yield part.warn(message, 'Set "kv_role": "kv_both"', names)
    if any(not configuration for __, configuration in configurations):
        return
    one, other = (str((configuration or {}).get("kv_connector", "")) for __, configuration in configurations)
    if one != other:
        message = f"{decode.title} has the KV connector {short(other)}, and {prefill.title} {short(one)}"
        yield decode.warn(message, "Set the same kv_connector in both", names)
    elif one and not one.startswith(("Nixl", "Multi")) and not _overrides_connector(serving):
        message = f"has the KV connector {short(one)}, while the sidecar of the Decode engine uses NIXL"
        yield decode.warn(message, f"Use NixlConnector, or set {_SIDECAR_FLAG} in serving.sidecar.args", names)


def _overrides_connector(serving: Any) -> bool:
    sidecar = serving.sidecar if serving else None
    written = (sidecar.args or ()) if sidecar else ()
    return bool(sidecar and sidecar.image) or any(_SIDECAR_FLAG in each for each in written)


def _tensor(prefill: _Part, decode: _Part) -> Iterator[Problem]:
    """Yield degrees of tensor parallelism between which NixlConnector cannot transfer KV caches."""
    known = [axes(part.line) for part in (prefill, decode)]
    if None in known:
        return
    one, other = ((each or {}).get(TENSOR, 1) for each in known)
    said = f"{decode.title} has {TENSOR}={other}, and {prefill.title} has {one}"
    if max(one, other) % min(one, other):
        hint = f"Set values of {TENSOR} of which one is a multiple of the other"
        yield decode.warn(f"{said}: KV caches cannot be divided between them", hint, tuple(decode.server.axes))
    elif other < one and decode.version[:2] < _DECODE_MAY_BE_SMALLER:
        message = f"{said}: before vLLM 0.14, the connector refuses a Decode engine with fewer GPUs"
        hint = f"Set {TENSOR} of the Decode engine to {one} or a multiple of it"
        yield decode.warn(message, hint, tuple(decode.server.axes))


def _sglang_transfer(prefill: _Part, decode: _Part) -> Iterator[Problem]:
    for part, mode in ((prefill, "prefill"), (decode, "decode")):
        flag = part.line.find(("--disaggregation-mode",))
        if not flag or (is_known(flag.value) and flag.value != mode):
            message = f"{part.title} has {'another' if flag else 'no'} --disaggregation-mode"
            yield part.warn(message, f"Set --disaggregation-mode={mode}", ("--disaggregation-mode",))
    yield from _differences(prefill, decode, (prefill.server.transfer,))


# --- caches ---


def cache_agreement(deployment: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield engines that cannot load their model from the ModelCache of their deployment."""
    template = deployment.spec.template.spec
    reference = template.model_cache_ref
    cache = fleet.find("ModelCache", deployment.namespace, reference.name) if reference else None
    source = cache.spec.hugging_face if cache else None
    for index, engine in enumerate(template.engines if source else ()):
        for position, member in enumerate(engine.members):
            path = f"spec.template.spec.engines[{index}].members[{position}].template.spec.containers[0]"
            part = _Part.of(member, path, f"engine {engine.name}")
            if part:
                yield from _cached(part, source, reference.name)


def _cached(part: _Part, source: Any, cache: str) -> Iterator[Problem]:
    is_folder = source.layout == "Folder"
    offline = next((name for name in _OFFLINE if (part.line.variable(name) or "").lower() in _TRUE), "")
    given = part.line.variables.get("HF_HUB_OFFLINE", "1")
    if not is_folder and not offline and given is not None and given.lower() in _TRUE:
        offline = "HF_HUB_OFFLINE"
    why = f" because of {offline}=1" if offline else ""
    model = part.model
    if is_folder and offline and _REPOSITORY.fullmatch(model):
        message = f"loads {short(model)}, which it cannot download{why}: ModelCache {cache} has plain files"
        yield part.warn(message, f"Write {part.server.model[0]}={constants.MODEL_CACHE_PATH}", part.server.model)
    elif not is_folder and model.rstrip("/") == constants.MODEL_CACHE_PATH:
        message = f"loads {model}, and ModelCache {cache} has the layout of Hugging Face's cache there"
        yield part.warn(message, f"Write {source.repo}, or set layout: Folder", part.server.model)
    elif not is_folder and _REPOSITORY.fullmatch(model) and model != source.repo:
        consequence = f"which it cannot download{why}" if offline else "which every pod downloads"
        message = f"loads {short(model)}, {consequence}: ModelCache {cache} has {source.repo}"
        yield part.warn(message, f"Name {source.repo}, or change the ModelCache", part.server.model)
    elif not is_folder and offline and model == source.repo:
        revision = part.line.find(("--revision",))
        value = revision.value if revision else ""
        if is_known(value) and (value or "main") != (source.revision or "main"):
            message = f"loads revision {short(value or 'main')} of the model, and ModelCache {cache} has "
            hint = f"Set --revision={source.revision or 'main'}"
            yield part.warn(f"{message}{short(source.revision or 'main')}", hint, ("--revision",))
    tokenizer = part.line.value(_TOKENIZERS)
    if offline and _REPOSITORY.fullmatch(tokenizer) and (is_folder or tokenizer != source.repo):
        message = f"loads the tokenizer {short(tokenizer)}, which it cannot download{why}"
        yield part.warn(message, "Use the tokenizer of the model, or one that the ModelCache has", _TOKENIZERS)
