# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What an engine's command line says about the engine: what it is, its port, its KV cache block size, its parallelism.

Flags are read from `args` and then from `command`. An element that is shell text, as in
`sh -c "exec vllm serve --port 8001"`, is split as a POSIX shell would split it. Nothing is expanded: a value such as
`$(PORT)` is unknown here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

DEFAULT_BLOCK_SIZE = 16

_MAX_PORT = 65535
_MAX_BLOCK_SIZE = 2**31 - 1
_MAX_DIGITS = 10
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#.*$")
# Variables that Kubernetes expands, and command substitutions: their parentheses end no command.
_SUBSTITUTION = re.compile(r"\$\([^()]*\)")
_OPERATORS = frozenset("();<>|&")

TENSOR = "--tensor-parallel-size"
_PIPELINE = "--pipeline-parallel-size"
_DATA = "--data-parallel-size"
_MOST_DEVICES = 64 * 64
_ALL_ARGUMENTS = ("$@", "$*")
# So often a script hands its arguments on; each time they are all looked at.
_MOST_PASSED = 8


@dataclass(frozen=True)
class _Program:
    """The flags of an inference server: by each spelling the axis that it sets, and those with which the axes alone do
    not tell how many devices the server takes."""

    axes: Mapping[str, str]
    unsure: frozenset[str]


# https://docs.vllm.ai/en/stable/cli/serve.html, ParallelConfig; https://docs.sglang.ai/advanced_features/server_arguments.html
_PROGRAMS: Mapping[str, _Program] = {
    "vllm": _Program(
        {TENSOR: TENSOR, "-tp": TENSOR, _PIPELINE: _PIPELINE, "-pp": _PIPELINE, _DATA: _DATA, "-dp": _DATA},
        frozenset(
            {
                "--config",
                "--data-parallel-rank",
                "-dpn",
                "--data-parallel-start-rank",
                "-dpr",
                "--data-parallel-external-lb",
                "-dpe",
                "--data-parallel-hybrid-lb",
                "-dph",
                "--prefill-context-parallel-size",
                "-pcp",
            }
        ),
    ),
    "sglang": _Program(
        {
            **dict.fromkeys((TENSOR, "--tp-size", "--tp"), TENSOR),
            **dict.fromkeys((_PIPELINE, "--pp-size"), _PIPELINE),
            **dict.fromkeys((_DATA, "--dp-size", "--dp"), _DATA),
        },
        frozenset({"--config"}),
    ),
}
# Its experts and its data-parallel attention are within the tensor-parallel group: they take no devices of their own.
_SGLANG_ATTENTION = "--enable-dp-attention"


@dataclass(frozen=True)
class Parallelism:
    """How many devices all pods of one copy of an engine take, by the axes that are written.

    `axes` are the long names of flags of vLLM with their values; `field` is `args` or `command`, where they are.
    """

    axes: Mapping[str, int]
    devices: int
    field: str

    def __str__(self) -> str:
        return " ".join(f"{axis}={value}" for axis, value in self.axes.items())


def port(container: Mapping[str, Any], expected: int) -> int:
    """The `--port` of an engine, or the port where it is expected to listen."""
    return _number(container, ("--port",), _MAX_PORT) or expected


def block_size(container: Mapping[str, Any]) -> int:
    """Tokens per KV cache block: `--block-size` (vLLM) or `--page-size` (SGLang), else 16."""
    return _number(container, ("--block-size", "--page-size"), _MAX_BLOCK_SIZE) or DEFAULT_BLOCK_SIZE


def program(container: Mapping[str, Any]) -> str | None:
    """The inference server that a container starts: `vllm` or `sglang`; None for any other program, and for several."""
    plain = _plain(container)
    found = {name for words in (*_scripts(container), plain) if (name := _starts(words))}
    if not found and not container.get("command"):
        repository = str(container.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
        found = {"vllm"} if repository == "vllm-openai" else set()
    return found.pop() if len(found) == 1 else None


def has_model(container: Mapping[str, Any]) -> bool:
    """Whether the engine's args name a model."""
    return any(arg == "--model" or arg.startswith("--model=") for arg in container.get("args") or ())


def parallelism(container: Mapping[str, Any]) -> Parallelism | None:
    """The parallelism of an engine that is vLLM or SGLang; None where no axis is written or nobody can tell.

    Nobody can tell what a value is that is expanded in the pod, what an unknown program does, and which of several
    command lines will run if they differ.
    """
    script, plain = _scripts(container), _plain(container)
    name = program(container)
    if name is None or any(str(entry.get("name", "")).startswith("VLLM_DP_") for entry in container.get("env") or ()):
        return None
    started = [words for words in script if _starts(words) == name]
    if started:
        args = _plain({"args": container.get("args")})
        passed = [sum(word in _ALL_ARGUMENTS for word in words) for words in started]
        if (args and not all(passed)) or sum(passed) > _MOST_PASSED:
            return None
        lines = [
            [each for word in words for each in (args if word in _ALL_ARGUMENTS else (word,))] for words in started
        ]
    else:
        lines = [plain]
    found = [_axes(words, name) for words in lines]
    if found[0] is None or any(other != found[0] for other in found[1:]):
        return None
    axes = dict(found[0])
    shared = (_DATA,) if axes.pop(_SGLANG_ATTENTION, None) else ()
    devices = prod(value for axis, value in axes.items() if axis not in shared)
    return Parallelism(axes, devices, _field_of_axes(container, name)) if axes else None


def _field_of_axes(container: Mapping[str, Any], name: str) -> str:
    args = {"args": container.get("args")}
    words = (word for line in (_plain(args), *_scripts(args)) for word in line)
    return "args" if any(_flag(word, name) in _PROGRAMS[name].axes for word in words) else "command"


def _flag(word: str, name: str) -> str:
    """The flag that a word of a command line is; vLLM takes underscores for dashes."""
    flag = word.partition("=")[0]
    return flag[:2] + flag[2:].replace("_", "-") if name == "vllm" else flag


def _axes(words: Sequence[str], name: str) -> dict[str, int] | None:
    """The axes that a command line sets; None where that cannot be told."""
    known = _PROGRAMS[name]
    axes: dict[str, int] = {}
    before = ""
    for position, word in enumerate(words):
        flag = _flag(word, name)
        if flag in known.unsure:
            return None
        if name == "sglang" and flag == _SGLANG_ATTENTION:
            axes[_SGLANG_ATTENTION] = 1
        elif flag in known.axes:
            _, equals, value = word.partition("=")
            number = _integer(value if equals else "".join(words[position + 1 : position + 2]), _MOST_DEVICES)
            axis = known.axes[flag]
            if number is None or axes.setdefault(axis, number) != number:
                return None
        elif word.startswith("$") and not (before.startswith("-") and "=" not in before) and before != "serve":
            # It may become any flags.
            return None
        before = word
    return axes


def _starts(words: Sequence[str]) -> str | None:
    """The inference server that a command line starts."""
    for word, following in pairwise((*words, "")):
        name = word.rpartition("/")[2]
        if word.startswith("vllm.entrypoints.") or (name == "vllm" and following == "serve"):
            return "vllm"
        if word == "sglang.launch_server" or (name == "sglang" and following == "serve"):
            return "sglang"
    return None


def _number(container: Mapping[str, Any], flags: tuple[str, ...], limit: int) -> int | None:
    """The value of the first of the flags; None when there is none or it is not a number from 1 to `limit`."""
    for words in _command_lines(container):
        for position, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if flag[:2] + flag[2:].replace("_", "-") not in flags:
                continue
            if not equals:
                value = words[position + 1] if position + 1 < len(words) else ""
            return _integer(value, limit)
    return None


def _integer(text: str, limit: int) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        return None
    number = int(text)
    return number if 1 <= number <= limit else None


def _command_lines(container: Mapping[str, Any]) -> Iterator[list[str]]:
    """The command lines that a container starts, its args first, each as its words."""
    for field in ("args", "command"):
        part = {field: container.get(field)}
        yield _plain(part)
        yield from _scripts(part)


def _plain(container: Mapping[str, Any]) -> list[str]:
    """The words of a container's command line that are no shell text, its command first."""
    elements = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [element.strip() for element in elements if not _is_script(element)]


def _scripts(container: Mapping[str, Any]) -> list[list[str]]:
    """The simple commands of shell text in a container's command line, each as its words."""
    elements = [*(container.get("command") or ()), *(container.get("args") or ())]
    commands = [words for element in elements if _is_script(element) for words in _simple_commands(element)]
    return [words for words in commands if not _starts_ray(words)]


def _is_script(element: str) -> bool:
    return not element.startswith("-") and any(char.isspace() for char in element.strip())


def _starts_ray(words: list[str]) -> bool:
    """Whether the command is `ray start`, whose --port is that of the Ray head, not of the engine."""
    return ("ray", "start") in pairwise(words)


def _simple_commands(script: str) -> list[list[str]]:
    """Shell text as its simple commands (POSIX "Shell Command Language", section 2.9.1), each as its words."""
    text = _SUBSTITUTION.sub("$", _COMMENT.sub("", script)).replace("\\\n", " ").replace("\n", " ; ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        # An unbalanced quote: the shell will refuse the script too, and words are the best guess.
        tokens = text.split()
    commands: list[list[str]] = [[]]
    for token in tokens:
        if token and set(token) <= _OPERATORS:
            commands.append([])
        else:
            commands[-1].append(token)
    return [words for words in commands if words]
