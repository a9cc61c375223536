# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reading a text costs what its size justifies: eight times the text, about eight times the work.

CPU time of this process is compared with itself, so a busy machine changes nothing; three times what is expected is let
through, and a pattern that goes back over what it has seen takes eight times what is expected.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import images
from ansible_collections.modelplane.fleet.plugins.module_utils.core.secrets import masked
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers import flags
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import Source, documents
from ansible_collections.modelplane.fleet.tests.written import command_line

FACTOR = 8
GENEROUS = 3
# What is above the noise, and the largest text to measure: whatever goes over 512 KiB again and again takes longer.
LEAST_SECONDS = 0.004
LARGEST = 1 << 19

Shape = Callable[[int], str]

BROKEN = "\nx: [\n"
YAML: dict[str, Shape] = {
    "keys": lambda size: "".join(f"k{number}: v\n" for number in range(size // 8)),
    "blank lines before an error": lambda size: "a: b\n" + "\n" * size + BROKEN,
    "lines of spaces before an error": lambda size: "a: b\n" + "   \n" * (size // 4) + BROKEN,
    "dashes before an error": lambda size: "a: b\n" + "- - -\n" * (size // 6) + BROKEN,
    "braces before an error": lambda size: "a: b\n" + "{{ {{- \n" * (size // 8) + BROKEN,
    "broken documents": lambda size: f"a: {'b' * (size // 16)}{BROKEN}---\n" * 16,
    "spaces behind a separator": lambda size: "---" + " " * size + "\na: b\n",
    "pairs of JSON": lambda size: '{"a": "' + r"\ud83d\ude00" * (size // 12) + '"}',
    "backslashes of JSON": lambda size: '{"a": "' + r"\\" * (size // 2) + '"}',
    "digits": lambda size: "a: " + "1_" * (size // 2),
    "a fraction": lambda size: "a: ." + "1" * size,
    "a folded text": lambda size: "a: >\n" + "  word\n\n" * (size // 8),
    "a list in one line": lambda size: "a: [" + "b, " * (size // 3) + "]",
    "equal keys": lambda size: "a: b\n" * (size // 5),
    "aliases": lambda size: "a: &a b\n" + "".join(f"k{number}: *a\n" for number in range(size // 10)),
    "merges": lambda size: "a: &a {b: c}\n" + "".join(f"k{number}: {{<<: *a}}\n" for number in range(size // 16)),
}
MANIFESTS: dict[str, Shape] = {
    "parts": lambda size: "---\nkind: Pod\n" * (size // 14),
    "blank lines behind a kind": lambda size: "kind:" + "\n" * size,
    "kinds without a name": lambda size: "kind:\n" * (size // 6),
    "spaces before a word": lambda size: "kind: Pod\n" + " " * size + "x" + BROKEN,
    "a long word": lambda size: "kind: Pod\n" + "x" * size + BROKEN,
    "a long path": lambda size: "kind: Pod\nx: [\nx.io/" + "a/" * (size // 2),
    "many dashes in a path": lambda size: "kind: Pod\nx: [\nx.io/a" + "-" * size,
    "many domains": lambda size: "kind: Pod\nx: [\n" + "a." * (size // 2),
}
SCRIPTS: dict[str, Shape] = {
    "words": lambda size: "vllm serve " + "--a b " * (size // 6),
    "comments": lambda size: "vllm serve\n" + "# x\n" * (size // 4),
    "spaces": lambda size: "vllm serve" + " " * size + "# x",
    "open substitutions": lambda size: "vllm serve " + "$(" * (size // 2),
}
TEXTS: dict[str, Shape] = {
    "backslashes in a value that was cut": lambda size: '"token": "' + r"\\" * (size // 2),
    "backslashes in an escaped value that was cut": lambda size: r"\"token\": \"" + r"\\\\" * (size // 4),
    "JSON in JSON that was cut": lambda size: '"value":"' + r"{\"a\":" * (size // 7),
    "names without a value": lambda size: '"a":' * (size // 4),
    "flags": lambda size: "-a." * (size // 3),
    "flags without a value": lambda size: "--a-key " * (size // 8),
    "headers": lambda size: "--header=" * (size // 9),
    "tokens": lambda size: "eyJ-" * (size // 4),
    "tokens of OpenAI": lambda size: "sk-" * (size // 3),
    "schemes": lambda size: "a://" * (size // 4),
    "dashes": lambda size: "-" * size,
    "letters": lambda size: "a" * size,
    "bearers": lambda size: "Bearer " * (size // 7),
    "keys that do not end": lambda size: "-----BEGIN PRIVATE KEY-----" * (size // 27),
    "parameters": lambda size: "?a=" * (size // 3),
    "webhooks": lambda size: "https://hooks." * (size // 14),
}


def read_yaml(text: str) -> None:
    for _ in documents(Source("a.yaml", text.encode())):
        pass


def read_script(text: str) -> None:
    line = command_line({"command": ["sh", "-c", text]})
    flags.parallelism(line)
    line.number(("--port",), 65535)


READERS = [
    *((read_yaml, name, shape) for name, shape in YAML.items()),
    *((images.in_manifests, name, shape) for name, shape in MANIFESTS.items()),
    *((read_script, name, shape) for name, shape in SCRIPTS.items()),
    *((masked, name, shape) for name, shape in TEXTS.items()),
]


def seconds(read: Callable[[str], object], text: str, rounds: int) -> float:
    """CPU time of the quickest of some rounds, without that of collecting the garbage of other tests."""
    found = []
    gc.disable()
    try:
        for _ in range(rounds):
            begin = time.process_time()
            read(text)
            found.append(time.process_time() - begin)
    finally:
        gc.enable()
    return min(found)


@pytest.mark.parametrize(
    ("read", "shape"),
    [pytest.param(read, shape, id=f"{read.__name__}, {name}") for read, name, shape in READERS],
)
def test_the_time_to_read_grows_as_the_text_does(read: Callable[[str], object], shape: Shape) -> None:
    size = 1 << 11
    while seconds(read, shape(size), 1) < LEAST_SECONDS:
        if size == LARGEST:
            return
        size *= 2
    small = seconds(read, shape(size), 3)
    large = seconds(read, shape(size * FACTOR), 2)
    assert large <= small * FACTOR * GENEROUS, f"{large:.3f} s for {FACTOR} times what takes {small:.3f} s"
