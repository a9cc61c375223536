# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of the agreement between Prefill and Decode engines, members of a gang, and engines and their ModelCache.

Only known values are compared: servers that are not in the table, scripts of more than one command, and values that are
unknown before the pod runs have no findings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..compose import constants
from ..problem import Problem, warning
from ..servers import table
from ..servers.command_line import CommandLine, is_known
from ..servers.flags import SERVED_NAME, axes, block_size, parse_tokens
from ..servers.table import SERVERS, TENSOR, Server
from ..text import short
from .model_gateways import Fleet

# Flags that vLLM or SGLang must have in common in all pods of a gang, and in Prefill and Decode engines.
_SHARED_FLAGS = (
    *(("--dtype",), ("--quantization", "-q"), ("--kv-cache-dtype",), ("--max-model-len",), ("--context-length",)),
    *(("--revision",), ("--attention-backend",), ("--speculative-config", "-sc"), ("--speculative-algorithm",)),
    ("--load-format",),
)
_PAIR_FLAGS = (*_SHARED_FLAGS, (SERVED_NAME,), ("--disaggregation-transfer-backend",))
# The transfer backend of SGLang is mooncake by default.
_DEFAULTS = frozenset(("auto", "none", "main", "mooncake"))
_SYNONYMS = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "fp8_e4m3": "fp8"}
# Other ways of vLLM to use several nodes: data parallelism and Ray.
_DATA_PARALLEL = ("--data-parallel-address", "-dpa", "--data-parallel-start-rank", "-dpr", "--data-parallel-rank")
_EXECUTORS = ("--distributed-executor-backend", "--data-parallel-backend", "-dpb")
_TRANSFER = "--kv-transfer-config"
_NIXL = f'{_TRANSFER}={{"kv_connector":"NixlConnector","kv_role":"kv_both"}}'
_CONNECTOR = "--kv-connector"
_MODE = ("--disaggregation-mode",)
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = frozenset(("1", "on", "yes", "true"))
_TOKENIZERS = ("--tokenizer", "--tokenizer-path")


@dataclass(frozen=True)
class _Container:
    """Container of a member of an engine that starts a server with known flags."""

    path: str
    title: str
    line: CommandLine
    server: Server

    @classmethod
    def of(cls, member: Any, path: str, title: str) -> _Container | None:
        """Return the container of a member; None if its flags are unknown.

        `path`: the path of the member.
        """
        line = CommandLine.of(member.template.spec.containers[0])
        if line.server is None or not line.is_complete:
            return None
        return cls(f"{path}.template.spec.containers[0]", title, line, line.server)

    @cached_property
    def model(self) -> str:
        """Model that the server loads; empty if unknown."""
        first_argument = next(iter(self.line.arguments), "-")
        if (
            self.server.model.flags
            and not self.line.has(self.server.model.flags)
            and not first_argument.startswith("-")
        ):
            return first_argument if is_known(first_argument) else ""
        return self.line.setting(self.server.model)[0] or ""

    @property
    def transfer(self) -> dict[str, Any] | None:
        """KV transfer configuration of vLLM; empty without a configuration, None if unknown."""
        settings: dict[str, Any] = {}
        for flag in self.line.flags:
            if flag.name == _TRANSFER:
                try:
                    settings = dict(json.loads(flag.value))
                except (TypeError, ValueError):
                    return None
            elif flag.name.startswith(f"{_TRANSFER}."):
                settings[flag.name.removeprefix(f"{_TRANSFER}.").replace("-", "_")] = flag.value
        return settings if all(is_known(str(value)) for value in settings.values()) else None

    def warn(self, message: str, hint: str, names: Sequence[str] = ()) -> Problem:
        """Return a warning at the first of these flags, or at the field for it."""
        return warning(message, f"{self.path}.{self.line.element(names)}", hint)


def engines_agreement(engines: Sequence[Any], base: str, serving: Any) -> Iterator[Problem]:
    """Yield disagreements within gangs, and between the engines of a PrefillDecode pair. `base` is the path of the
    object with the engines and `serving`, their routing."""
    leaders: dict[str, _Container | None] = {}
    for index, engine in enumerate(engines):
        is_gang = len(engine.members) > 1
        containers = {}
        for position, member in enumerate(engine.members):
            title = f"the {member.role} of engine {engine.name}" if is_gang else f"engine {engine.name}"
            path = f"{base}.engines[{index}].members[{position}]"
            containers[member.role] = _Container.of(member, path, title)
        leaders[engine.phase] = containers.get(constants.LEADER if is_gang else engine.members[0].role)
        if is_gang:
            workers = [member.worker for member in engine.members if member.role == constants.WORKER]
            nodes = 1 + sum(worker.nodes if worker else 1 for worker in workers)
            yield from _gang(leaders[engine.phase], containers.get(constants.WORKER), nodes)
    prefill, decode = leaders.get("Prefill"), leaders.get(constants.DECODE)
    if prefill and decode:
        yield from _pair(prefill, decode, serving)


def _differences(first: _Container, second: _Container, flags: Sequence[Sequence[str]]) -> Iterator[Problem]:
    """Yield differences of server, version, model and flags between two containers, at the second container."""
    if first.server is not second.server:
        message = f"{second.title} is {second.server.title}, and {first.title} is {first.server.title}"
        yield second.warn(f"{message}: they cannot work together", "Use the same inference server in both")
        return
    versions = [table.version(container.server, container.line.image) for container in (first, second)]
    if all(versions) and versions[0] != versions[1]:
        message = f"{second.title} and {first.title} have different versions of {first.server.title}"
        yield warning(message, f"{second.path}.image", "Use the same image in both", short(second.line.image))
    if first.model and second.model and first.model != second.model:
        message = f"{second.title} loads {short(second.model)}, and {first.title} loads {short(first.model)}"
        yield second.warn(message, "Name the same model in both", second.server.model.flags)
    for names in flags:
        values = [flag.value if (flag := container.line.find(names)) else "" for container in (first, second)]
        if all(map(is_known, values)) and len({_canonical(value, names) for value in values}) > 1:
            texts = [f"{names[0]}={short(value)}" if value else f"no {names[0]}" for value in values]
            message = f"{second.title} has {texts[1]}, and {first.title} has {texts[0]}"
            yield second.warn(message, f"Set {names[0]} to the same value in both", names)


def _canonical(value: str, names: Sequence[str]) -> str:
    """Return the canonical form of a value of the flag with these names; empty for a default."""
    if names[0] in SERVERS["vllm"].context:
        return "" if value in ("auto", "-1") else str(parse_tokens(value) or value)
    if value.startswith("{"):
        try:
            return json.dumps(json.loads(value), sort_keys=True)
        except ValueError:
            return value
    return "" if value.lower() in _DEFAULTS else _SYNONYMS.get(value.lower(), value)


# --- gangs ---


def _gang(leader: _Container | None, worker: _Container | None, nodes: int) -> Iterator[Problem]:
    for container, is_leader in ((leader, True), (worker, False)):
        if container and container.server.gang and not container.line.is_launch and not _uses_other_launch(container):
            yield from _launch(container, is_leader, nodes)
    if leader and worker:
        yield from _differences(leader, worker, _SHARED_FLAGS)
        leader_axes, worker_axes = axes(leader.line), axes(worker.line)
        is_known_pair = leader.server is worker.server and leader_axes is not None and worker_axes is not None
        if is_known_pair and leader_axes != worker_axes:
            message = f"{worker.title} has {_text(worker_axes)}, and {leader.title} has {_text(leader_axes)}"
            yield worker.warn(message, "Set the same parallelism in both", tuple(worker.server.axes))


def _text(sizes: Mapping[str, int] | None) -> str:
    return " ".join(f"{axis}={size}" for axis, size in (sizes or {}).items()) or "no parallelism"


def _uses_other_launch(container: _Container) -> bool:
    """Return True if vLLM uses data parallelism over nodes, or a Ray cluster that already exists."""
    line = container.line
    if container.server.name != "vllm" or line.has(container.server.gang["nodes"]):
        return False
    has_ray = "RAY_ADDRESS" in line.variables or not line.has_command
    return line.has(_DATA_PARALLEL) or (has_ray and line.value(_EXECUTORS) == "ray")


def _launch(container: _Container, is_leader: bool, nodes: int) -> Iterator[Problem]:
    """Yield flags that a member of a gang lacks to start one server with the other members, and wrong values."""
    gang, line = container.server.gang, container.line
    address = f"$(MODELPLANE_LEADER_ADDRESS){':5000' if container.server.name == 'sglang' else ''}"
    settings = {"nodes": str(nodes), "rank": "$(MODELPLANE_RANK)", "leader": address}
    missing = [name for name in settings if not line.has(gang[name])]
    if missing:
        flags = ", ".join(gang[name][0] for name in missing)
        hint = f"Add {' '.join(f'{gang[name][0]}={settings[name]}' for name in missing)}"
        hint += ", and use them instead of Ray" if line.value(_EXECUTORS) == "ray" else ""
        yield container.warn(f"lacks {flags}: {container.title} starts a separate {container.server.title}", hint)
        return
    if "worker" in gang and is_leader == line.has(gang["worker"]):
        flag = gang["worker"][0]
        if is_leader:
            message = f"has {flag}: the Leader starts no API server, and receives all requests"
            yield container.warn(message, f"Remove {flag}", gang["worker"])
        else:
            yield container.warn(f"lacks {flag}: {container.title} starts an API server like the Leader", f"Add {flag}")
    number, rank, leader = (line.value(gang[name]) for name in settings)
    ranks = ("0",) if is_leader else ("1",) if nodes == 2 else ()
    problems = {
        "nodes": f"the gang has {nodes} pods" if number not in ("", str(nodes)) else "",
        "rank": "every pod needs its own rank, the Leader 0" if rank not in ("", *ranks) else "",
        "leader": "this address is another pod on each node" if _is_local(leader) else "",
    }
    for name, problem in problems.items():
        if problem:
            flag = gang[name][0]
            message = f"has {flag}={short(line.value(gang[name]))}, and {problem}"
            yield container.warn(message, f"Write {flag}={settings[name]}", gang[name])


def _is_local(address: str) -> bool:
    return table.is_loopback(address.rpartition(":")[0] or address)


# --- pairs ---


def _pair(prefill: _Container, decode: _Container, serving: Any) -> Iterator[Problem]:
    yield from _differences(prefill, decode, _PAIR_FLAGS)
    if prefill.server is not decode.server:
        return
    is_vllm = prefill.server.name == "vllm"
    names = prefill.server.block_size
    prefill_size, decode_size = (block_size(container.line) for container in (prefill, decode))
    # NixlConnector of vLLM divides blocks.
    if prefill_size != decode_size and not (is_vllm and decode_size % prefill_size == 0):
        message = f"{decode.title} has blocks of {decode_size} tokens, and {prefill.title} of {prefill_size}"
        yield decode.warn(f"{message}: it cannot read the KV cache", f"Set the same {names[0]} in both", names)
    if is_vllm:
        yield from _vllm_transfer(prefill, decode, serving)
        yield from _tensor_parallelism(prefill, decode)
    for container, mode in ((prefill, "prefill"), (decode, "decode")):
        flag = container.line.find(_MODE)
        if container.server.name == "sglang" and (flag is None or (is_known(flag.value) and flag.value != mode)):
            message = f"{container.title} has {'another' if flag else 'no'} {_MODE[0]}"
            yield container.warn(message, f"Set {_MODE[0]}={mode}", _MODE)


def _vllm_transfer(prefill: _Container, decode: _Container, serving: Any) -> Iterator[Problem]:
    for container, wrong_role, verb in ((prefill, "kv_consumer", "send"), (decode, "kv_producer", "receive")):
        transfer = container.transfer
        if transfer is None:
            continue
        if not transfer.get("kv_connector"):
            message = f"{container.title} has no KV connector, so the KV cache of a prompt is not transferred"
            yield container.warn(message, f"Add {_NIXL}", (_TRANSFER,))
        elif transfer.get("kv_role") is None:
            message = f"{container.title} has no kv_role, and does not start without it"
            yield container.warn(message, 'Set "kv_role": "kv_both"', (_TRANSFER,))
        elif transfer["kv_role"] == wrong_role:
            message = f"{container.title} has kv_role {wrong_role}, which does not {verb} KV caches"
            yield container.warn(message, 'Set "kv_role": "kv_both"', (_TRANSFER,))
    sender, receiver = (str((container.transfer or {}).get("kv_connector", "")) for container in (prefill, decode))
    if sender and receiver and sender != receiver:
        message = f"{decode.title} has the KV connector {short(receiver)}, and {prefill.title} {short(sender)}"
        yield decode.warn(message, "Set the same kv_connector in both", (_TRANSFER,))
    elif sender and receiver and not sender.startswith(("Nixl", "Multi")) and not _has_own_connector(serving):
        message = f"has the KV connector {short(sender)}, while the sidecar of the Decode engine uses NIXL"
        yield decode.warn(message, f"Use NixlConnector, or set {_CONNECTOR} in serving.sidecar.args", (_TRANSFER,))


def _has_own_connector(serving: Any) -> bool:
    sidecar = serving.sidecar if serving else None
    return sidecar is not None and (
        bool(sidecar.image) or any(_CONNECTOR in argument for argument in sidecar.args or ())
    )


def _tensor_parallelism(prefill: _Container, decode: _Container) -> Iterator[Problem]:
    """Yield tensor parallelism settings that prevent NixlConnector from transferring KV caches."""
    sizes = [axes(container.line) for container in (prefill, decode)]
    prefill_size, decode_size = ((axis_sizes or {}).get(TENSOR, 1) for axis_sizes in sizes)
    if None not in sizes and max(prefill_size, decode_size) % min(prefill_size, decode_size):
        message = f"{decode.title} has {TENSOR}={decode_size}, and {prefill.title} has {prefill_size}"
        hint = f"Set {TENSOR} of one engine to a multiple of the value of the other"
        yield decode.warn(f"{message}: KV caches cannot be divided", hint, tuple(decode.server.axes))


# --- caches ---


def cache_agreement(deployment: Any, fleet: Fleet) -> Iterator[Problem]:
    """Yield engines that cannot load their model from the ModelCache of their deployment."""
    template = deployment.spec.template.spec
    reference = template.model_cache_ref
    cache = fleet.find("ModelCache", deployment.namespace, reference.name) if reference else None
    source = cache.spec.hugging_face if cache else None
    for index, engine in enumerate(template.engines if source else ()):
        for position, member in enumerate(engine.members):
            path = f"spec.template.spec.engines[{index}].members[{position}]"
            container = _Container.of(member, path, f"engine {engine.name}")
            if container:
                yield from _cache(container, source, reference.name)


def _cache(container: _Container, source: Any, cache: str) -> Iterator[Problem]:
    """Yield a model, a revision and a tokenizer that are not in a ModelCache."""
    is_folder = source.layout == "Folder"
    content = "plain files" if is_folder else source.repo
    # The fleet sets HF_HUB_OFFLINE for a Hub cache unless the container does.
    variables = {} if is_folder else {"HF_HUB_OFFLINE": "1"}
    variables |= {name: value or "" for name, value in container.line.variables.items()}
    offline = next((name for name in _OFFLINE if variables.get(name, "").lower() in _TRUE), "")
    download = f"which it cannot download because of {offline}=1" if offline else "which every pod downloads"
    model, flags = container.model, container.server.model.flags
    is_repository = bool(_REPOSITORY.fullmatch(model))
    if not is_folder and model.rstrip("/") == constants.MODEL_CACHE_PATH:
        message = f"loads {model}, and ModelCache {cache} has the layout of Hugging Face's cache there"
        yield container.warn(message, f"Write {source.repo}, or set layout: Folder", flags)
    elif is_repository and ((is_folder and offline) or (not is_folder and model != source.repo)):
        setting = (*flags, container.server.model.variable)[0]
        hint = f"Write {setting}={constants.MODEL_CACHE_PATH}" if is_folder else f"Write {source.repo}"
        message = f"loads {short(model)}, {download}: ModelCache {cache} has {content}"
        yield container.warn(message, f"{hint}, or change the ModelCache", flags)
    elif not is_folder and offline and model == source.repo:
        flag = container.line.find(("--revision",))
        revision, cached = (flag.value if flag else "") or "main", source.revision or "main"
        if is_known(revision) and revision != cached:
            message = f"loads revision {short(revision)} of the model, and ModelCache {cache} has {short(cached)}"
            yield container.warn(message, f"Set --revision={cached}", ("--revision",))
    tokenizer = container.line.value(_TOKENIZERS)
    if offline and _REPOSITORY.fullmatch(tokenizer) and (is_folder or tokenizer != source.repo):
        hint = "Use the tokenizer of the model, or a tokenizer that the ModelCache has"
        yield container.warn(f"loads the tokenizer {short(tokenizer)}, {download}", hint, _TOKENIZERS)
