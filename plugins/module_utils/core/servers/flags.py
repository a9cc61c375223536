# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Flags of an inference server: KV cache block size, parallelism, use of device memory, and flags that stop it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers import released_flags, table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.command_line import (
    CommandLine,
    Flag,
    dashed,
    is_known,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.table import (
    DATA,
    PIPELINE,
    SERVERS,
    TENSOR,
    Server,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import nearest

DEFAULT_BLOCK_SIZE = 16

_BLOCK_SIZES = tuple(name for server in SERVERS.values() for name in server.block_size)
_MAX_BLOCK_SIZE = 2**31 - 1
_MAX_CONTEXT = 2**31 - 1
_MOST_DEVICES = 64 * 64
_CONFIG = "--config"
# With these flags the axes do not determine the number of devices.
_UNSURE = frozenset(
    {
        *(_CONFIG, "--prefill-context-parallel-size", "-pcp"),
        *("--data-parallel-rank", "-dpn", "--data-parallel-start-rank", "-dpr"),
        *("--data-parallel-external-lb", "-dpe", "--data-parallel-hybrid-lb", "-dph"),
    }
)
# SGLang's data-parallel attention runs within the tensor-parallel group: it uses no additional devices.
_SGLANG_ATTENTION = "--enable-dp-attention"
# Weights that are partly in the memory of the node.
_OFFLOADS = ("--cpu-offload", "--offload")
# A KV cache of which a device does not have the part that the other axes determine.
_SPLITS = ("--decode-context-parallel-size", "-dcp", "--attn-cp-size", "--attention-context-parallel-size")
_FRACTION = re.compile(r"[01]?(\.[0-9]{1,6})?", re.ASCII)
# As human_readable_int of vllm/engine/arg_utils.py reads it: small letters count in thousands and may have a fraction.
_TOKENS = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,10}(?=[kmgt]))?)([kmgtKMGT]?)", re.ASCII)
_MULTIPLES: Mapping[str, int] = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", 1)},
}
# vLLM takes what fits.
_FITTING_CONTEXT = ("auto", "-1")
_TEMPLATE = "{{"


@dataclass(frozen=True)
class Parallelism:
    """Devices of all pods of one copy of an engine, according to the axes in its flags.

    `axes` maps the long names of vLLM's flags to values; `field` is `args` or `command`, whichever contains them or
    would contain them.
    """

    axes: Mapping[str, int]
    devices: int
    field: str

    def __str__(self) -> str:
        return " ".join(f"{axis}={value}" for axis, value in self.axes.items())


@dataclass(frozen=True)
class MemoryUse:
    """Distribution of a model over the memory of devices.

    `shards`: most devices that weights may be divided over. `tensor` and `pipeline` divide heads and layers of the KV
    cache; 0 where its division is not known. `fraction`: part of a device's memory for both. `cache_type` and `context`
    are the type of the cache and the tokens of a request that flags set; empty and 0 without a flag.
    """

    shards: int = 1
    tensor: int = 1
    pipeline: int = 1
    fraction: Fraction = Fraction(1)
    cache_type: str = ""
    context: int = 0


@dataclass(frozen=True)
class WrongFlag:
    """Flag with which a server does not start: `problem`, the value if it is wrong, what to do, and the element."""

    problem: str
    value: str
    hint: str
    place: str


def block_size(line: CommandLine) -> int:
    """Return the tokens per KV cache block: `--block-size` (vLLM) or `--page-size` (SGLang), else 16."""
    return line.number(_BLOCK_SIZES, _MAX_BLOCK_SIZE) or DEFAULT_BLOCK_SIZE


def axes(line: CommandLine) -> Mapping[str, int] | None:
    """Return the axes of parallelism that flags set, by the long names of vLLM's flags; None if they are uncertain, as
    for other servers and for values that are expanded in the pod."""
    server = line.server
    if server is None or not server.axes or not line.is_read or line.unknown_flags:
        return None
    if any(variable.startswith("VLLM_DP_") for variable in line.variables):
        return None
    found: dict[str, int] = {}
    for flag in line.flags:
        if flag.name in _UNSURE:
            return None
        if flag.name in server.axes:
            number = int(flag.value) if _is_positive(flag.value) else 0
            if not 0 < number <= _MOST_DEVICES or found.setdefault(server.axes[flag.name], number) != number:
                return None
    return found


def parallelism(line: CommandLine) -> Parallelism | None:
    """Return the parallelism of an engine that is vLLM or SGLang; None when it cannot be determined. Without an axis it
    uses one device."""
    found = axes(line)
    if found is None or not (line.words or line.has_command):
        return None
    shared = (DATA,) if line.has((_SGLANG_ATTENTION,)) else ()
    first = next((flag for flag in line.flags if line.server and flag.name in line.server.axes), None)
    field = line.place(first).partition("[")[0]
    return Parallelism(found, prod(value for axis, value in found.items() if axis not in shared), field)


def memory_use(line: CommandLine) -> MemoryUse | None:
    """Return how an engine that is vLLM or SGLang uses the memory of devices; None when it cannot be determined, as for
    weights that are partly in the memory of the node.

    Without an axis one device has all. vLLM divides experts over the devices of all axes
    (https://docs.vllm.ai/en/stable/serving/data_parallel_deployment/), so that with data parallelism no more is known
    than that bound; SGLang has whole copies unless attention alone is data parallel.
    """
    found, server = axes(line), line.server
    is_partial = "VLLM_PP_LAYER_PARTITION" in line.variables or any(f.name.startswith(_OFFLOADS) for f in line.flags)
    if found is None or server is None or server.memory is None or is_partial:
        return None
    tensor, pipeline, data = (found.get(axis, 1) for axis in (TENSOR, PIPELINE, DATA))
    name, fraction = server.memory
    if text := line.value((name,)):
        fraction = Fraction(text) if _FRACTION.fullmatch(text) and 0 < Fraction(text) <= 1 else Fraction(1)
    if (line.has((name,)) and not text) or line.has(("--kv-cache-memory-bytes",)):
        fraction = Fraction(1)
    tokens = _tokens(line.value(server.context))
    return MemoryUse(
        shards=tensor * pipeline * (data if server.name == "vllm" else 1),
        tensor=0 if line.has(_SPLITS) else max(tensor // data, 1) if line.has((_SGLANG_ATTENTION,)) else tensor,
        pipeline=pipeline,
        fraction=fraction,
        cache_type=line.value(("--kv-cache-dtype",)),
        context=tokens if tokens <= _MAX_CONTEXT else 0,
    )


def wrong_flags(line: CommandLine) -> Iterator[WrongFlag]:
    """Yield the flags with which a server does not start: values of parallelism, device memory and context that it
    refuses, and flags that its version does not have. Values that are expanded in the pod are unknown."""
    server = line.server
    if server is None:
        return
    for flag in line.flags:
        must = _must(flag, server)
        if must and is_known(flag.value) and _TEMPLATE not in flag.value:
            problem = f"has a value of {flag.name} with which the engine does not start"
            yield WrongFlag(problem, flag.value or "nothing", f"It must be {must}", line.place(flag))
        elif re.search(r"\s", flag.name):
            name, __, value = flag.name.partition(" ")
            problem = f"is one word with a space, which {server.title} does not take for the flag {name}"
            yield WrongFlag(
                problem, "", f"Write {name}={value.strip()}" if value else f"Write {name}", line.place(flag)
            )
        else:
            yield from _unknown_flag(flag, server, line)


def _unknown_flag(flag: Flag, server: Server, line: CommandLine) -> Iterator[WrongFlag]:
    """Yield a flag that the version of a server does not have, if the tag of its image is a version."""
    version = table.version(server, line.image)
    known = released(server.name)
    name = dashed(flag.name.partition(".")[0].removesuffix("+"))[2:]
    if not flag.name.startswith("--") or not is_known(flag.name) or not name or version not in known:
        return
    flags = known[version]
    # argparse accepts the beginning of a name, and a server the opposite of a switch.
    if any(each.startswith((name, name.removeprefix("no-"))) for each in flags):
        return
    versions = [each for each in known if name in known[each]]
    later = [each for each in versions if table.release(each) > table.release(version)]
    hint = "Remove it"
    if later:
        hint = f"{server.title} has it since {later[0]}: use such an image, or remove it"
    elif versions:
        hint = f"{versions[-1]} was the last version that had it: remove it"
    elif similar := nearest(name, sorted(flags)):
        hint = f"Did you mean --{similar}?"
    problem = f"{flag.name}: {server.title} {version} has no such flag, and does not start with it"
    yield WrongFlag(problem, "", hint, line.place(flag))


@functools.cache
def released(name: str) -> Mapping[str, frozenset[str]]:
    """Return the flags of a server, without their leading dashes, by version; empty for a server without data."""
    versions = released_flags.VERSIONS.get(name, "").split()
    found: dict[str, set[str]] = {version: set() for version in versions}
    having: list[str] = []
    for word in released_flags.FLAGS.get(name, "").split():
        if word.endswith(":"):
            ranges = [each.partition("-") for each in word[:-1].split(",")]
            having = [v for first, __, last in ranges for v in versions[int(first) : int(last) + 1 if last else None]]
            continue
        for version in having:
            found[version].add(word)
    return {version: frozenset(flags) for version, flags in found.items()}


def _must(flag: Flag, server: Server) -> str:
    """Return what a value must be; empty for one that is right, and for flags that are not read here."""
    name, value = flag.name, flag.value
    if name in server.axes:
        return "" if _is_positive(value) else "a whole number of 1 or more"
    if name in server.names:
        return "" if value else "a name"
    if server.memory and name == server.memory[0]:
        return "" if _is_part(value) else "a number above 0 and up to 1, such as 0.9"
    if name in server.context and server.name == "vllm":
        is_right = value in _FITTING_CONTEXT or _tokens(value)
        return "" if is_right else "a number of tokens such as 32768, 32k (32,000) or 32K (32,768), or auto"
    if name in server.context:
        return "" if _is_positive(value) else "a whole number of tokens such as 32768"
    return ""


def _is_positive(text: str) -> bool:
    return text.isascii() and text.isdecimal() and bool(text.strip("0")) and len(text) < 11


def _is_part(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


def _tokens(text: str) -> int:
    """Return a number of tokens, which may end with a letter; 0 for what is none."""
    match = _TOKENS.fullmatch(text)
    return int(Fraction(match[1]) * _MULTIPLES[match[2]]) if match else 0
