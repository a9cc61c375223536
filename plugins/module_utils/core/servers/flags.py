# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Settings of vLLM and SGLang by their flags: served names, KV cache blocks, parallelism, and use of device memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from .command_line import CommandLine, is_known, unknown_variables
from .table import DATA, PIPELINE, SERVERS, TENSOR

SERVED_NAME = "--served-model-name"
DEFAULT_BLOCK_SIZE = 16

_BLOCK_SIZES = tuple(name for server in SERVERS.values() for name in server.block_size)
_MAX_INT = 2**31 - 1
_MAX_DEVICES = 64 * 64
# With these flags the axes do not determine the number of devices.
_OTHER_PARALLELISM = frozenset(
    {
        *("--config", "--extra_llm_api_options", "--prefill-context-parallel-size", "-pcp"),
        *("--data-parallel-rank", "-dpn", "--data-parallel-start-rank", "-dpr"),
        *("--data-parallel-external-lb", "-dpe", "--data-parallel-hybrid-lb", "-dph"),
    }
)
# SGLang's data-parallel attention runs within the tensor-parallel group: it uses no additional devices.
_SGLANG_ATTENTION = ("--enable-dp-attention",)
# Weights that are partly in the memory of the node.
_OFFLOADS = ("--cpu-offload", "--offload")
# The KV cache is divided by more than the axes.
_SPLITS = ("--decode-context-parallel-size", "-dcp", "--attn-cp-size", "--attention-context-parallel-size")
_FRACTION = re.compile(r"[01]?(\.[0-9]{1,6})?", re.ASCII)
# human_readable_int of vllm/engine/arg_utils.py: small letters count in thousands and accept a fraction.
_TOKENS = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,10}(?=[kmgt]))?)([kmgtKMGT]?)", re.ASCII)
_MULTIPLES: Mapping[str, int] = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", 1)},
}


@dataclass(frozen=True)
class ServedNames:
    """Served model names of an engine."""

    names: tuple[str, ...]
    """Names with known values."""
    can_be_added: bool
    """True if the flag can be added to the arguments."""
    unknown: tuple[str, ...] = ()
    """Variables with unknown values in names. An empty text is a command of the shell."""
    unknown_flags: tuple[str, ...] = ()
    """Variables that can contain any flag."""
    in_file: bool = False
    """True if only a file can set names."""
    in_script: bool = False
    """True if the flags are in a script that is not parsed."""
    rejected: int = 0
    """Number of names for a server that accepts only one name."""


@dataclass(frozen=True)
class Parallelism:
    """Devices of all pods of one copy of an engine, according to the axes in its flags."""

    axes: Mapping[str, int]
    """Values by the long flags of vLLM."""
    flags: Mapping[str, str]
    """Flags of the server by the long flags of vLLM."""
    devices: int
    field: str
    """`args` or `command`: the field with the axes, or the field for new axes."""

    def __str__(self) -> str:
        return " ".join(f"{self.flags[axis]}={value}" for axis, value in self.axes.items())


@dataclass(frozen=True)
class MemoryUse:
    """Distribution of a model over the memory of devices."""

    shards: int = 1
    """Maximum number of devices that share the weights."""
    tensor: int = 1
    """Number of devices that share the heads of the KV cache, 0 if unknown."""
    pipeline: int = 1
    """Number of devices that share the layers of the KV cache."""
    fraction: Fraction = Fraction(1)
    """Part of the memory of a device for weights and KV cache."""
    cache_type: str = ""
    context: int = 0
    """Maximum number of tokens of a request, 0 without a flag."""


def served_names(line: CommandLine) -> ServedNames | None:
    """Return the served model names of an engine. None if its server accepts requests for any name, or is unknown and
    has no flag for them."""
    server = line.server
    flag = line.find(server.names if server else (SERVED_NAME,))
    if not (server.names if server else flag and flag.values):
        return None
    if server and not line.is_parsed:
        return ServedNames((), can_be_added=False, in_script=True)
    values = flag.values if flag else ()
    unknown = [name for name in values if not is_known(name)]
    return ServedNames(
        names=tuple(name for name in values if is_known(name)),
        can_be_added=line.is_complete and not line.script_field and not unknown,
        unknown=unknown_variables(unknown),
        unknown_flags=unknown_variables(line.unknown_flags),
        in_file=line.reads_file and not values,
        rejected=len(values) if server and server.one_name and len(values) > 1 else 0,
    )


def block_size(line: CommandLine) -> int:
    """Return the tokens per KV cache block: `--block-size` (vLLM) or `--page-size` (SGLang), 16 by default."""
    return line.number(_BLOCK_SIZES, _MAX_INT) or DEFAULT_BLOCK_SIZE


def axes(line: CommandLine) -> Mapping[str, int] | None:
    """Return the axes of parallelism that flags set, by the long flags of vLLM. None if they are unknown."""
    server = line.server
    if server is None or not server.axes or not line.is_parsed or line.unknown_flags:
        return None
    if any(variable.startswith("VLLM_DP_") for variable in line.variables):
        return None
    sizes: dict[str, int] = {}
    for flag in line.flags:
        can_be_axis = flag.name.strip("-") and any(axis.startswith(flag.name) for axis in server.axes)
        if flag.name in _OTHER_PARALLELISM or (can_be_axis and flag.name not in server.axes):
            return None
        if flag.name in server.axes:
            size = int(flag.value) if is_positive(flag.value) else 0
            if not 0 < size <= _MAX_DEVICES or sizes.setdefault(server.axes[flag.name], size) != size:
                return None
    for name, axis in server.axes.items():
        value = "" if name.startswith("-") or axis in sizes else line.variable(name)
        if value != "":
            if not value or not is_positive(value) or int(value) > _MAX_DEVICES:
                return None
            sizes[axis] = int(value)
    return sizes if sizes or server.one_device else None


def parallelism(line: CommandLine) -> Parallelism | None:
    """Return the parallelism of an engine, None if it is unknown. Without an axis it uses one device."""
    sizes = axes(line)
    server = line.server
    if server is None or sizes is None or not (sizes or line.words or line.has_command):
        return None
    shared = (DATA,) if line.has(_SGLANG_ATTENTION) else ()
    field = line.element(tuple(server.axes)).partition("[")[0]
    names = {axis: name for name, axis in reversed(list(server.axes.items()))}
    return Parallelism(sizes, names, prod(size for axis, size in sizes.items() if axis not in shared), field)


def memory_use(line: CommandLine) -> MemoryUse | None:
    """Return the use of device memory by an engine. None if it is unknown, or if some weights are in the memory of the
    node.

    vLLM divides experts over the devices of all axes
    (https://docs.vllm.ai/en/stable/serving/data_parallel_deployment/). Therefore, only the maximum number of shards is
    known with data parallelism. SGLang has whole copies unless only attention is data parallel.
    """
    sizes, server = axes(line), line.server
    is_partial = "VLLM_PP_LAYER_PARTITION" in line.variables or any(f.name.startswith(_OFFLOADS) for f in line.flags)
    if sizes is None or server is None or server.memory is None or is_partial:
        return None
    tensor, pipeline, data = (sizes.get(axis, 1) for axis in (TENSOR, PIPELINE, DATA))
    name, fraction = server.memory
    text = line.value((name,))
    if line.has((name,)):
        fraction = Fraction(text) if text and _FRACTION.fullmatch(text) and 0 < Fraction(text) <= 1 else Fraction(1)
    if line.has(("--kv-cache-memory-bytes",)):
        fraction = Fraction(1)
    tokens = parse_tokens(line.value(server.context))
    return MemoryUse(
        shards=tensor * pipeline * (data if server.name == "vllm" else 1),
        tensor=0 if line.has(_SPLITS) else max(tensor // data, 1) if line.has(_SGLANG_ATTENTION) else tensor,
        pipeline=pipeline,
        fraction=fraction,
        cache_type=line.value(("--kv-cache-dtype",)),
        context=tokens if tokens <= _MAX_INT else 0,
    )


def is_positive(text: str) -> bool:
    """Return True if a text is a whole number of 1 or more."""
    return text.isascii() and text.isdecimal() and bool(text.strip("0")) and len(text) < 11


def parse_tokens(text: str) -> int:
    """Return a number of tokens from a text that can end with a unit letter, 0 for other texts."""
    match = _TOKENS.fullmatch(text)
    return int(Fraction(match[1]) * _MULTIPLES[match[2]]) if match else 0
