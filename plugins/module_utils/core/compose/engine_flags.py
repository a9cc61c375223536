# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The command line of an engine: the server it starts, its port, its KV cache block size, its parallelism.

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

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_template import Container

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
class CommandLine:
    """Command line of a container. `variables` are the names of its environment."""

    command: Sequence[str] = ()
    args: Sequence[str] = ()
    image: str = ""
    variables: Sequence[str] = ()

    @classmethod
    def of(cls, container: Container) -> CommandLine:
        """Return the command line of the container of an engine."""
        variables = tuple(variable.name for variable in container.env or ())
        return cls(container.command or (), container.args or (), container.image, variables)

    @property
    def fields(self) -> tuple[CommandLine, CommandLine]:
        """The arguments alone, and the command alone."""
        return CommandLine(args=self.args), CommandLine(command=self.command)


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


def port(line: CommandLine, expected: int) -> int:
    """The `--port` of an engine, or the port where it is expected to listen."""
    return _number(line, ("--port",), _MAX_PORT) or expected


def block_size(line: CommandLine) -> int:
    """Tokens per KV cache block: `--block-size` (vLLM) or `--page-size` (SGLang), else 16."""
    return _number(line, ("--block-size", "--page-size"), _MAX_BLOCK_SIZE) or DEFAULT_BLOCK_SIZE


def program(line: CommandLine) -> str | None:
    """The inference server that a container starts: `vllm` or `sglang`; None for any other program, and for several."""
    found = {name for words in (*_scripts(line), _plain(line)) if (name := _starts(words))}
    if not found and not line.command:
        repository = line.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
        found = {"vllm"} if repository == "vllm-openai" else set()
    return found.pop() if len(found) == 1 else None


def has_model(line: CommandLine) -> bool:
    """Whether the engine's args name a model."""
    return any(arg == "--model" or arg.startswith("--model=") for arg in line.args)


def parallelism(line: CommandLine) -> Parallelism | None:
    """The parallelism of an engine that is vLLM or SGLang; None where no axis is written or nobody can tell.

    Nobody can tell what a value is that is expanded in the pod, what an unknown program does, and which of several
    command lines will run if they differ.
    """
    name = program(line)
    if name is None or any(variable.startswith("VLLM_DP_") for variable in line.variables):
        return None
    started = [words for words in _scripts(line) if _starts(words) == name]
    if started:
        args = _plain(line.fields[0])
        passed = [sum(word in _ALL_ARGUMENTS for word in words) for words in started]
        if (args and not all(passed)) or sum(passed) > _MOST_PASSED:
            return None
        lines = [
            [each for word in words for each in (args if word in _ALL_ARGUMENTS else (word,))] for words in started
        ]
    else:
        lines = [_plain(line)]
    found = [_axes(words, name) for words in lines]
    if found[0] is None or any(other != found[0] for other in found[1:]):
        return None
    axes = dict(found[0])
    shared = (_DATA,) if axes.pop(_SGLANG_ATTENTION, None) else ()
    devices = prod(value for axis, value in axes.items() if axis not in shared)
    return Parallelism(axes, devices, _field_of_axes(line, name)) if axes else None


def _field_of_axes(line: CommandLine, name: str) -> str:
    args, _command = line.fields
    words = (word for each in (_plain(args), *_scripts(args)) for word in each)
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
            __, equals, value = word.partition("=")
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


def _number(line: CommandLine, flags: tuple[str, ...], limit: int) -> int | None:
    """The value of the first of the flags; None when there is none or it is not a number from 1 to `limit`."""
    for words in _command_lines(line):
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


def _command_lines(line: CommandLine) -> Iterator[list[str]]:
    """The command lines that a container starts, its args first, each as its words."""
    for part in line.fields:
        yield _plain(part)
        yield from _scripts(part)


def _plain(line: CommandLine) -> list[str]:
    """The words of a container's command line that are no shell text, its command first."""
    elements = [*line.command, *line.args]
    return [element.strip() for element in elements if not _is_script(element)]


def _scripts(line: CommandLine) -> list[list[str]]:
    """The simple commands of shell text in a container's command line, each as its words."""
    elements = [*line.command, *line.args]
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
