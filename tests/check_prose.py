# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Limits on the wording of documentation, docstrings and local names. docs/contributing/style.md has the rules.

`python tests/check_prose.py` reads the checkout, and prints each exceeded limit with its lines. It exits with 1 if a
limit is exceeded. The patterns are heuristics: some hits are correct English, so limits apply to shares, not lines.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.modelplane.fleet.tests.checkout import ROOT, files

MAX_PER_10_000_WORDS = 25.0
MAX_PER_10_000_WORDS_OF_A_PAGE = 40.0
MAX_PERCENT_OF_NAMES = 2.0
MAX_PERCENT_OF_DOCSTRINGS = 5.0
LONG_PAGES = ("docs/variables.md", "docs/contributing/", "docs/kinds/fields/")
"""Generated references, and pages for contributors."""
MAX_WORDS = 2_000

_NOUN = (
    "callers?|clusters?|gateways?|services?|endpoints?|replicas?|engines?|fleet|pods?|nodes?|providers?|deployments?"
)
_OWNED = (
    "keys|rights|budgets|names|labels|copies|objects|statuses|policies|states|variables|certificates|rows|versions?"
)
_SUBJECT = "it|they|that|the|a|an|its|all|no|both|others?|there|this|these|those|pods|nodes|what|some|each|every|one"
PATTERNS = {
    "of-chain": rf"\b(?:{_OWNED}) of (?:a |an |the |all |its )?(?:{_NOUN})\b",
    "free relative clause": r"(?:(?:^|[.;:|] )(?:What|Who|Whoever|Which)|\b(?:of|by|with|for|to|in|from) what) [a-z]",
    "'as' for because": rf", as (?:{_SUBJECT}) ",
    "unnamed person": r"\b(?:[Nn]o one|[Ww]hoever|who has\b)",
    "say": r"\b(?:says?|said)\b",
    "lead to": r"\bleads?(?: [a-z]+)? (?:to|there|from|clients)\b",
    "pronoun for a noun": r"\b(?:one|ones|those|that) (?:that|which|who|with|without|of|by|for|in|on|whose) ",
    "'where' for if": r"(?:(?:^|[.;:|] )Where [a-z]|, where (?:it|that|there|they|no|one|the|this|these|a|each) )",
    "'alone' for only": r"[a-zA-Z`]+ alone\b",
    "beside": r"\bbeside\b",
    "become of": r"\bbec(?:o|a)m(?:e|es|ing)? of\b",
    "'absent is'": r"\babsent (?:is|are)\b",
    "is to be": r"\b(?:is|are) to be\b",
    "in place of": r"\b(?:in place of|takes? (?:the|its|their) place|take the place)\b",
    "know": r"\b(?:knows?|known) (?:of|by|that|it|what|its|from|the|all|as|nothing)\b",
    "stand": r"\bstands? (?:by|for|beside|in|side|above|below|at)\b",
    "go and come": r"\b(?:goes?|gone|comes?|came) (?:to|on|there|from|before|back|with|by|where|whole|again)\b",
    "inverted 'so'": r"(?:^|[.!?] )So (?:a|an|the|it|they|that|who|no|do|is|are|does|where|in|each|all|both|such)\b",
    "preposition and which": r"\b(?:by|with|from|for|to|in|on|of|at) (?:which|whom|whose)\b",
    "measure": r"\b(?:for so long|by as much|so many|as many|as long as that|by so much|much as)\b",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in PATTERNS.items()}
_CODE = re.compile(r"```.*?```|^    .*?$", re.DOTALL | re.MULTILINE)
_CLAUSE = re.compile(r"\b(?:what|which|whose|whether|who|whoever)\b", re.IGNORECASE)
PRONOUNS = frozenset(
    {
        "after",
        "alone",
        "asked",
        "at",
        "before",
        "behind",
        "beside",
        "both",
        "each",
        "ended",
        "first",
        "found",
        "given",
        "gone",
        "held",
        "here",
        "inside",
        "kept",
        "keeps",
        "known",
        "last",
        "leads",
        "least",
        "left",
        "listed",
        "made",
        "mates",
        "meant",
        "mine",
        "more",
        "most",
        "named",
        "needed",
        "now",
        "one",
        "open",
        "other",
        "others",
        "ours",
        "own",
        "part",
        "parts",
        "place",
        "places",
        "rest",
        "said",
        "shown",
        "spent",
        "stays",
        "stuck",
        "taken",
        "there",
        "tried",
        "way",
        "ways",
        "whole",
        "word",
        "words",
        "written",
    }
)
"""Pronouns, adverbs and participles, which name no object."""


@dataclass(frozen=True)
class Share:
    """Number of hits among a number of words, names or docstrings, with the lines of the hits."""

    hits: tuple[str, ...]
    total: int

    def per(self, unit: int) -> float:
        """Return the number of hits per `unit` words, names or docstrings."""
        return unit * len(self.hits) / max(1, self.total)


def main() -> int:
    """Print the exceeded limits. Return 1 if there is one, else 0."""
    pages = {name: page_share(name) for name in files() if name == "README.md" or _is_page(name)}
    names, docstrings = names_share(), docstrings_share()
    all_pages = Share(
        tuple(hit for page in pages.values() for hit in page.hits), sum(page.total for page in pages.values())
    )
    problems = [
        *_exceeded("dialect hits per 10,000 words", all_pages, 10_000, MAX_PER_10_000_WORDS),
        *_exceeded("% of local names are pronouns or participles", names, 100, MAX_PERCENT_OF_NAMES),
        *_exceeded("% of docstrings begin with a relative clause", docstrings, 100, MAX_PERCENT_OF_DOCSTRINGS),
    ]
    for name, page in pages.items():
        problems += _exceeded(f"dialect hits per 10,000 words in {name}", page, 10_000, MAX_PER_10_000_WORDS_OF_A_PAGE)
        words = len((ROOT / name).read_text(encoding="utf-8").split())
        if words > MAX_WORDS and not name.startswith(LONG_PAGES):
            problems.append(f"{name} has {words} words, and must have at most {MAX_WORDS}: split the page")
    print("\n".join(problems), end="\n" if problems else "")
    return int(bool(problems))


def _exceeded(unit: str, share: Share, scale: int, limit: float) -> Iterator[str]:
    if share.per(scale) > limit:
        yield f"{share.per(scale):.1f} {unit}, and the limit is {limit:g}:"
        yield from (f"  {hit}" for hit in share.hits)


def _is_page(name: str) -> bool:
    return name.startswith("docs/") and name.endswith(".md")


def page_share(name: str) -> Share:
    """Return the dialect hits of a page of documentation, without its code blocks."""
    text = _CODE.sub(lambda block: "\n" * block[0].count("\n"), (ROOT / name).read_text(encoding="utf-8"))
    hits = [
        f"{name}:{number}: {pattern_name}: {match[0].strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern_name, pattern in _PATTERNS.items()
        for match in pattern.finditer(line)
    ]
    return Share(tuple(hits), len(text.split()))


def names_share() -> Share:
    """Return the local names in plugins that are pronouns, adverbs or participles."""
    total, hits = 0, []
    for name, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                total += 1
                if node.id in PRONOUNS:
                    hits.append(f"{name}:{node.lineno}: {node.id}")
    return Share(tuple(hits), total)


def docstrings_share() -> Share:
    """Return the docstrings in plugins with a relative clause in their first paragraph."""
    total, hits = 0, []
    for name, tree in _modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node)
                total += docstring is not None
                first = (docstring or "").partition("\n\n")[0]
                if _CLAUSE.search(first):
                    hits.append(f"{name}:{node.body[0].lineno}: {first.splitlines()[0]}")
    return Share(tuple(hits), total)


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for name in files():
        if name.startswith("plugins/") and name.endswith(".py"):
            yield name, ast.parse((ROOT / name).read_text(encoding="utf-8"), str(Path(name)))


if __name__ == "__main__":
    sys.exit(main())
