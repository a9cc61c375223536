# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reject words in names, messages, docstrings, comments, task names, documentation and changelog fragments.

docs/contributing/style.md lists the words. `python tests/check_words.py [PATH...]` checks all files of the checkout, or
the given files and directories. Exits with 1 if there are findings.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ansible_collections.modelplane.fleet.tests.checkout import ROOT, files

SUFFIXES = (".py", ".yml", ".yaml", ".j2", ".md", ".cfg", ".toml", ".txt", "Makefile")
# The last one is generated from flags of other projects.
ITSELF = ("docs/contributing/style.md", "tests/check_words.py", "plugins/module_utils/core/servers/released_flags.py")
DATA = "tests/data/"
"""Manifests as others write them."""
_NAMES = re.compile(r'marks=(?=pytest\.mark)|\("Fault"\)|selfHeal:')
"""Names of others: an argument of pytest, the suffix of errors of AWS, a field of Argo CD."""

RETIRED = {
    "advice": "hint, remediation",
    "anew": "again",
    "bring|brings|bringing|brought": "create, install, copy, move",
    "differing": "different, diff",
    "door|doors": "cluster gateway, gateway, API",
    "fault|faults|faulty": "finding, error",
    "forms": "formats, versions",
    "heal|heals|healed|healing": "fix",
    "lean": "trimmed, projection",
    "leftover|leftovers": "orphan",
    "look|looks|looked|looking": "read, check, inspect, list",
    "marks": "owner labels, ownership",
    "nobody": "the name of the actor",
    "remedy|remedies": "remediation, hint",
    "sight": "snapshot, observation",
    "situation": "context",
    "somebody": "a user, another manager",
    "span of time|spans of time": "window",
    "stranger|strangers": "other owner, unowned",
    "take away|takes away|taken away|taking away|took away": "delete, prune, remove",
    "tell|tells|telling|told": "report, say, message",
    "wanted": "desired",
}
_WORDS = re.compile(rf"(?<![a-z])(?:{'|'.join(RETIRED).replace(' ', '[ _]')})(?![a-z])", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_QUESTION = re.compile(r"(?:What|Whether|Who|Whose|Which|How|Where|When|Why)\b")


def main(arguments: Sequence[str]) -> int:
    found = [line for name in chosen(arguments) for line in findings(name)]
    for line in found:
        print(line)
    if found:
        print(f"{len(found)} findings. docs/contributing/style.md has the words.")
    return 1 if found else 0


def chosen(arguments: Sequence[str]) -> list[str]:
    """Return the files to read."""
    named = [Path(each).resolve().relative_to(ROOT).as_posix() for each in arguments]
    names = [name for name in files() if name.endswith(SUFFIXES) and name not in ITSELF and not name.startswith(DATA)]
    if named:
        return [name for name in names if any(name == each or name.startswith(f"{each}/") for each in named)]
    return names


def findings(name: str) -> Iterator[str]:
    """Yield a line for each finding in a file: place, word, and what to write."""
    text = (ROOT / name).read_text()
    for number, line in enumerate(text.splitlines(), 1):
        for match in _WORDS.finditer(_CAMEL.sub("_", _NAMES.sub("", line))):
            yield f"{name}:{number}: {match[0]}: write {instead(match[0])}"
    for number, docstring in docstrings(text) if name.endswith(".py") else ():
        if match := _QUESTION.match(docstring):
            yield f"{name}:{number}: docstring begins with {match[0]}: begin with a verb or a noun"


def instead(word: str) -> str:
    """Return what to write for a retired word."""
    plain = word.lower().replace("_", " ")
    return next(better for words, better in RETIRED.items() if plain in words.split("|"))


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each string that is a statement: of modules, classes, functions and attributes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                yield node.lineno, text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
