# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Command line of an engine: its inference server, port, KV cache block size, parallelism and use of device memory.

Flags are read from `args` and then from `command`. An element that is a shell script, as in
`sh -c "exec vllm serve --port 8001"`, is split as a POSIX shell would split it. Nothing is expanded: a value such as
`$(PORT)` is unknown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import dropwhile, pairwise
from math import prod

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_template import Container

DEFAULT_BLOCK_SIZE = 16

_MAX_PORT = 65535
_MAX_BLOCK_SIZE = 2**31 - 1
_MAX_CONTEXT = 2**31 - 1
_MAX_DIGITS = 10
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#.*$")
# Variables that Kubernetes expands, and command substitutions: their parentheses do not end a command.
_SUBSTITUTION = re.compile(r"\$\([^()]*\)")
_OPERATORS = frozenset("();<>|&")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh"})
# Words before the shell that a command runs: programs that run another, keywords; assignments, options, numbers.
_RUNNING = ("env", "nohup", "setsid", "nice", "ionice", "timeout", "stdbuf", "numactl", "taskset", "tini", "dumb-init")
_LEADING = ("exec", "command", "time", "if", "then", "elif", "else", "while", "until", "do", "!", "{")
_BEFORE = frozenset({*_RUNNING, *_LEADING})
_NO_COMMAND = re.compile(r"[-0-9]|[A-Za-z_]\w*=", re.ASCII)
# Options of those programs that have their value in the next word.
_VALUED = frozenset({"-u", "-a", "-C", "-s"})
_QUOTED_OR_REDIRECTION = re.compile(
    r"""(?P<quoted>\\.|'[^']*'|"(?:\\.|[^"\\])*")|(?:(?<!\S)[0-9]+|&)?(?:>>|>\||>&|<&|>|<)\s*[^\s;&|<>()]+""", re.DOTALL
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

DOLLAR = "\ue000"
"""Dollar sign that nothing expands."""
OUTER = "\ue001"
"""Dollar sign in a script within a script that the shell around it expands."""
OUTER_ARGUMENTS = re.compile(OUTER + r"\{?[@*]")
"""Arguments of the shell around a script: they may be any words of it."""

SERVED_NAME = "--served-model-name"
TENSOR = "--tensor-parallel-size"
_PIPELINE = "--pipeline-parallel-size"
_DATA = "--data-parallel-size"
_MOST_DEVICES = 64 * 64
ALL_ARGUMENTS = frozenset({"$@", "$*"})
"""Words of a script that have all its arguments."""
# Weights that are partly in the memory of the node.
_OFFLOADS = ("--cpu-offload", "--offload")
# A KV cache of which a device does not have the part that the other axes say.
_SPLITS = ("--decode-context-parallel-size", "-dcp", "--attn-cp-size", "--attention-context-parallel-size")
_FRACTION = re.compile(r"[01]?(\.[0-9]{1,6})?", re.ASCII)
_EXPANDED = re.compile(rf"[$`{OUTER}]|\{{\{{")
# As human_readable_int of vllm/engine/arg_utils.py reads it: small letters count in thousands and may have a fraction.
_TOKENS = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,10}(?=[kmgt]))?)([kmgtKMGT]?)", re.ASCII)
_MULTIPLES: Mapping[str, int] = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", 1)},
}
_VLLM_CONTEXT, _SGLANG_CONTEXT = "--max-model-len", "--context-length"
# vLLM takes what fits.
_FITTING_CONTEXT = ("auto", "-1")
# Limit on the number of "$@" in scripts: each is replaced by all arguments.
_MOST_PASSED = 8


@dataclass(frozen=True)
class _Program:
    """Flags of an inference server.

    `axes` maps each spelling of a flag to the axis that it sets. With a flag in `unsure` the axes do not determine the
    number of devices.
    """

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
# SGLang's data-parallel attention runs within the tensor-parallel group: it uses no additional devices.
_SGLANG_ATTENTION = "--enable-dp-attention"


@dataclass(frozen=True)
class _Memory:
    """Flag for the part of a device's memory that weights and KV cache may take, and the part without that flag."""

    flag: str
    default: Fraction


# vLLM: 0.92 is the default of https://docs.vllm.ai/en/stable/api/vllm/config/cache/, and was 0.9 in earlier versions.
# SGLang computes its own from the machine, so that all of the memory is the bound.
_MEMORY: Mapping[str, _Memory] = {
    "vllm": _Memory("--gpu-memory-utilization", Fraction(92, 100)),
    "sglang": _Memory("--mem-fraction-static", Fraction(1)),
}


@dataclass(frozen=True)
class CommandLine:
    """Command line of a container. `variables` are the names of its environment variables."""

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


def port(line: CommandLine, expected: int) -> int:
    """Return the `--port` of an engine, or the port on which it is expected to listen."""
    return _number(line, ("--port",), _MAX_PORT) or expected


def block_size(line: CommandLine) -> int:
    """Return the tokens per KV cache block: `--block-size` (vLLM) or `--page-size` (SGLang), else 16."""
    return _number(line, ("--block-size", "--page-size"), _MAX_BLOCK_SIZE) or DEFAULT_BLOCK_SIZE


def program(line: CommandLine) -> str | None:
    """Return the inference server that a container starts, `vllm` or `sglang`; None for other or several programs."""
    found = {name for words in (*_scripts(line), _plain(line)) if (name := starts(words))}
    if not found and not line.command:
        repository = line.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
        found = {"vllm"} if repository == "vllm-openai" else set()
    return found.pop() if len(found) == 1 else None


def has_flag(line: CommandLine, flag: str) -> bool:
    """Return whether a flag, written with dashes, is set."""
    return _has(line, (flag,))


def has_model(line: CommandLine) -> bool:
    """Return True when the engine's args name a model."""
    return any(arg == "--model" or arg.startswith("--model=") for arg in line.args)


def parallelism(line: CommandLine) -> Parallelism | None:
    """Return the parallelism of an engine that is vLLM or SGLang; None when it cannot be determined. Without an axis it
    uses one device.

    It cannot be determined for values that are expanded in the pod, for unknown programs, for what an image starts by
    itself, and for a script with several command lines of different axes.
    """
    known = _known_axes(line)
    if known is None:
        return None
    name, axes = known
    shared = (_DATA,) if axes.pop(_SGLANG_ATTENTION, None) else ()
    devices = prod(value for axis, value in axes.items() if axis not in shared)
    if not axes and not (line.args or line.command):
        return None
    field = _field_of_axes(line, name) if axes else "args" if line.args else "command"
    return Parallelism(axes, devices, field)


def memory_use(line: CommandLine) -> MemoryUse | None:
    """Return how an engine that is vLLM or SGLang uses the memory of devices; None when it cannot be determined, as for
    weights that are partly in the memory of the node.

    Without an axis one device has all. vLLM divides experts over the devices of all axes
    (https://docs.vllm.ai/en/stable/serving/data_parallel_deployment/), so that with data parallelism no more is known
    than that bound; SGLang has whole copies unless attention alone is data parallel.
    """
    known = _known_axes(line)
    if known is None or "VLLM_PP_LAYER_PARTITION" in line.variables or _has(line, _OFFLOADS, prefix=True):
        return None
    name, axes = known
    tensor, pipeline, data = (axes.get(axis, 1) for axis in (TENSOR, _PIPELINE, _DATA))
    heads = max(tensor // data, 1) if _SGLANG_ATTENTION in axes else tensor
    memory = _MEMORY[name]
    fraction = memory.default
    if text := _value(line, (memory.flag,)):
        fraction = Fraction(text) if _FRACTION.fullmatch(text) and 0 < Fraction(text) <= 1 else Fraction(1)
    if _has(line, ("--kv-cache-memory-bytes",)):
        fraction = Fraction(1)
    return MemoryUse(
        shards=tensor * pipeline * (data if name == "vllm" else 1),
        tensor=0 if _has(line, _SPLITS) else heads,
        pipeline=pipeline,
        fraction=fraction,
        cache_type=_value(line, ("--kv-cache-dtype",)),
        context=_context(line),
    )


@dataclass(frozen=True)
class WrongValue:
    """Value of a flag that its inference server refuses: what it `must` be; `field` is `args` or `command`."""

    flag: str
    value: str
    must: str
    field: str


def wrong_values(line: CommandLine) -> Iterator[WrongValue]:
    """Yield values of flags for parallelism, device memory and context that vLLM or SGLang would not start with.

    What is expanded in the pod is unknown, and so are programs that are neither."""
    name = program(line)
    if name is None:
        return
    for field, part in zip(("args", "command"), line.fields, strict=True):
        # A flag at the end of the command has its value in the args.
        behind = "".join(_plain(line.fields[0])[:1]) if field == "command" else ""
        scripts = ((words, "") for words in _scripts(part) if starts(words) == name)
        for words, following in ((_plain(part), behind), *scripts):
            for flag, value in _flags(words, name, following):
                must = _must(flag, value, name)
                if must and not _EXPANDED.search(value):
                    yield WrongValue(flag, value, must, field)


def _flags(words: Sequence[str], name: str, behind: str) -> Iterator[tuple[str, str]]:
    """Yield the flags of a command line, each with the value that it has if it takes one. `behind` is the word after
    these."""
    for word, following in pairwise((*words, behind)):
        if word.startswith("-"):
            __, equals, value = word.partition("=")
            yield flag_of(word, name), value if equals else following


def _must(flag: str, value: str, name: str) -> str:
    """Return what a value must be; empty for one that is right, and for flags that are not read here."""
    if flag in _PROGRAMS[name].axes:
        return "" if _is_positive(value) else "a whole number of 1 or more"
    if flag == SERVED_NAME:
        return "" if value and not value.startswith("-") else "a name"
    if flag == _MEMORY[name].flag:
        return "" if _is_part(value) else "a number above 0 and up to 1, such as 0.9"
    if flag == _VLLM_CONTEXT and name == "vllm":
        is_right = value in _FITTING_CONTEXT or _tokens(value)
        return "" if is_right else "a number of tokens such as 32768, 32k (32,000) or 32K (32,768), or auto"
    if flag == _SGLANG_CONTEXT and name == "sglang":
        return "" if _is_positive(value) else "a whole number of tokens such as 32768"
    return ""


def _is_positive(text: str) -> bool:
    return text.isascii() and text.isdecimal() and bool(text.strip("0"))


def _is_part(text: str) -> bool:
    try:
        return 0 < float(text) <= 1
    except ValueError:
        return False


def _context(line: CommandLine) -> int:
    """Return the tokens of a request that flags set; 0 when they are not known."""
    tokens = _tokens(_value(line, (_VLLM_CONTEXT, _SGLANG_CONTEXT)))
    return tokens if tokens <= _MAX_CONTEXT else 0


def _tokens(text: str) -> int:
    """Return a number of tokens, which may end with a letter; 0 for what is none."""
    match = _TOKENS.fullmatch(text)
    return int(Fraction(match[1]) * _MULTIPLES[match[2]]) if match else 0


def _known_axes(line: CommandLine) -> tuple[str, dict[str, int]] | None:
    """Return the inference server and the axes that its flags set; None when they cannot be determined."""
    name = program(line)
    if name is None or any(variable.startswith("VLLM_DP_") for variable in line.variables):
        return None
    started = [words for words in _scripts(line) if starts(words) == name]
    if started:
        scripts = filter(is_script, (*line.command, *line.args))
        if adds_words(scripts, started):
            return None
        lines = with_arguments(started, passed(line))
        if not lines or (_plain(line.fields[0]) and any(map(ALL_ARGUMENTS.isdisjoint, started))):
            return None
    else:
        lines = [_plain(line)]
    found = [_axes(words, name) for words in lines]
    if found[0] is None or any(other != found[0] for other in found[1:]):
        return None
    return name, dict(found[0])


def with_arguments(started: Sequence[list[str]], args: Sequence[str]) -> list[list[str]]:
    """Return commands of a script with its arguments where it passes them on; none where it does so too many times."""
    if sum(word in ALL_ARGUMENTS for words in started for word in words) > _MOST_PASSED:
        return []
    return [[each for word in words for each in (args if word in ALL_ARGUMENTS else (word,))] for words in started]


def adds_words(scripts: Iterable[str], started: Sequence[Sequence[str]]) -> bool:
    """Return whether scripts give a program words that are not read here: from a pipe, or other arguments than their
    own, as in a function and after `set` and `shift`."""
    if any("xargs" in words for words in started):
        return True
    split = [commands(script) for script in scripts]
    has_arguments = any(not ALL_ARGUMENTS.isdisjoint(each.words) for found in split for each in found)
    return has_arguments and any(_changes_arguments(each) for found in split for each in found)


def _changes_arguments(command: Command) -> bool:
    first, second = (*command.words[:2], "", "")[:2]
    sets = first == "set" and ("--" in command.words or not second.startswith(("-", "+")))
    return sets or first in ("shift", "function") or "()" in command.operator


def passed(line: CommandLine) -> list[str]:
    """Return the arguments of the script of a container: the first word behind it is its name, `$0`."""
    return _plain(CommandLine(args=list(dropwhile(_is_no_script, (*line.command, *line.args)))[2:]))


def _is_no_script(element: str) -> bool:
    return not is_script(element)


def nested_script(words: Sequence[str]) -> tuple[Sequence[str], str, Sequence[str]] | None:
    """Return what is before a shell that a simple command runs, its script, and the arguments of that; None for other
    commands. Dollar signs that the shell around it expands are marked."""
    shell = _shell(words)
    position, has_script = shell + 1, False
    while position < len(words) and words[position].startswith(("-", "+")):
        option = words[position][1:]
        letters = option if option.isalpha() else ""
        # As in `-o pipefail`, whose name is in the next word.
        position += 2 if "o" in letters.lower() else 1
        has_script = has_script or "c" in letters
        if option in ("", "-"):
            break
    if not has_script or position >= len(words):
        return None
    script = words[position].replace("$", OUTER).replace(DOLLAR, "$")
    return words[:shell], script, words[position + 2 :]


def _shell(words: Sequence[str]) -> int:
    """Return the position of the shell that a simple command runs; that of its end when it runs none."""
    for position, (before, word) in enumerate(pairwise(("", *words))):
        name = word.rpartition("/")[2]
        if before in _VALUED or _NO_COMMAND.match(word):
            continue
        if name in _SHELLS:
            return position
        if name not in _BEFORE:
            break
    return len(words)


def _field_of_axes(line: CommandLine, name: str) -> str:
    args, _command = line.fields
    words = (word for each in (_plain(args), *_scripts(args)) for word in each)
    return "args" if any(flag_of(word, name) in _PROGRAMS[name].axes for word in words) else "command"


def flag_of(word: str, name: str) -> str:
    """Return the flag in a word of a command line; vLLM accepts underscores for dashes."""
    flag = word.partition("=")[0]
    return _dashed(flag) if name == "vllm" else flag


def _axes(words: Sequence[str], name: str) -> dict[str, int] | None:
    """Return the axes that a command line sets; None when they cannot be determined."""
    known = _PROGRAMS[name]
    axes: dict[str, int] = {}
    before = ""
    for position, word in enumerate(words):
        flag = flag_of(word, name)
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
        elif OUTER_ARGUMENTS.search(word):
            return None
        elif word.startswith(("$", "`", OUTER)) and before != "serve" and not _takes_value(before):
            # The variable may expand to any flags.
            return None
        before = word
    return axes


def _takes_value(word: str) -> bool:
    return word.startswith("-") and "=" not in word


def starts(words: Sequence[str]) -> str | None:
    """Return the inference server that a command line starts."""
    for word, following in pairwise((*words, "")):
        name = word.rpartition("/")[2]
        if word.startswith("vllm.entrypoints.") or (name == "vllm" and following == "serve"):
            return "vllm"
        if word == "sglang.launch_server" or (name == "sglang" and following == "serve"):
            return "sglang"
    return None


def _number(line: CommandLine, flags: tuple[str, ...], limit: int) -> int | None:
    """Return the value of the first of the flags; None without one, or when it is no number from 1 to `limit`."""
    return _integer(_value(line, flags), limit)


def _has(line: CommandLine, flags: tuple[str, ...], *, prefix: bool = False) -> bool:
    """Return whether one of the flags, or of those that begin with one, is set."""
    found = (_dashed(word.partition("=")[0]) for words in _command_lines(line) for word in words)
    return any(flag.startswith(flags) if prefix else flag in flags for flag in found)


def _dashed(flag: str) -> str:
    return flag[:2] + flag[2:].replace("_", "-")


def _value(line: CommandLine, flags: tuple[str, ...]) -> str:
    """Return the text of the first of the flags; empty without one."""
    for words in _command_lines(line):
        for position, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if _dashed(flag) not in flags:
                continue
            if not equals:
                value = words[position + 1] if position + 1 < len(words) else ""
            return value
    return ""


def _integer(text: str, limit: int) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        return None
    number = int(text)
    return number if 1 <= number <= limit else None


def _command_lines(line: CommandLine) -> Iterator[list[str]]:
    """Yield the command lines that a container starts as lists of words, its args first."""
    for part in line.fields:
        yield _plain(part)
        yield from _scripts(part)


def _plain(line: CommandLine) -> list[str]:
    """Return the words of a container's command line that are not shell scripts, its command first."""
    elements = [*line.command, *line.args]
    return [element.strip() for element in elements if not is_script(element)]


def _scripts(line: CommandLine) -> list[list[str]]:
    """Return the simple commands in the shell scripts of a container's command line, as lists of words."""
    elements = [*line.command, *line.args]
    commands = [words for element in elements if is_script(element) for words in _simple_commands(element)]
    return [[word.replace(DOLLAR, "$") for word in words] for words in commands if not _starts_ray(words)]


def is_script(element: str) -> bool:
    return not element.startswith("-") and any(char.isspace() for char in element.strip())


def _starts_ray(words: list[str]) -> bool:
    """Return True for the command `ray start`, whose --port is that of the Ray head, not of the engine."""
    return ("ray", "start") in pairwise(words)


@dataclass(frozen=True)
class Command:
    """Simple command of a script: what separates it from the one before it, `;` for the first, and its words."""

    operator: str
    words: list[str]


def _simple_commands(script: str) -> Iterator[list[str]]:
    """Yield the simple commands of a script, and of scripts in it."""
    for words in (command.words for command in commands(script) if command.words):
        yield words
        nested = nested_script(words)
        if nested:
            __, script_inside, arguments = nested
            for inner in _simple_commands(script_inside):
                yield from with_arguments([inner], arguments)


def _marked(found: re.Match[str]) -> str:
    quoted = found["quoted"]
    if quoted is None:
        return " "
    if quoted.startswith("'"):
        return quoted.replace("$", DOLLAR)
    return _ESCAPED.sub(lambda escaped: DOLLAR if escaped[1] == "$" else escaped[0], quoted)


def commands(script: str) -> list[Command]:
    """Split a script into simple commands (POSIX "Shell Command Language", section 2.9.1), without redirections. After
    an operator at its end there is one without words. Dollar signs that its shell does not expand are marked."""
    marked = _QUOTED_OR_REDIRECTION.sub(_marked, _COMMENT.sub("", script))
    text = _SUBSTITUTION.sub("$", marked).replace("\\\n", " ").replace("\n", " ; ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        # The quotes are unbalanced: the shell will refuse the script too, and splitting at spaces is the best guess.
        tokens = text.split()
    found: list[Command] = []
    operator, words = "", list[str]()
    for token in tokens:
        if not (token and set(token) <= _OPERATORS):
            words.append(token)
            continue
        if words:
            found.append(Command(operator.strip(";") or ";", words))
            operator, words = "", []
        operator += token
    return [*found, Command(operator.strip(";") or ";", words)]
