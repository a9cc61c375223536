# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keeping what may be a secret out of what people see."""

from __future__ import annotations

import re

MASK = "********"
ENCRYPTED = "is encrypted with ansible-vault"
DECRYPT = (
    "Files are read as they are. Decrypt it with ansible-vault decrypt, or give its content, which "
    "lookup('ansible.builtin.unvault', 'FILE') decrypts,"
)
_VAULT = "$ANSIBLE_VAULT;"
SHORTEST_KEY = 12
"""Characters of the shortest key of a known form."""

_NAME = re.compile(r"token|secret|pass|pwd|key|credential|auth|private|cert|dsn", re.IGNORECASE)
# `--api-key=value` and `--api-key value`; what follows is a value only where it is no flag itself.
_FLAG = re.compile(r"(?P<flag>(?<![\w.-])--?(?P<name>[A-Za-z][\w.-]*))(?P<gap>=|\s+(?!-))(?P<value>\S+)")
_LONE_FLAG = re.compile(r"^ *- ['\"]?(?P<flag>--?(?P<name>[A-Za-z][\w.-]*))['\"]?$")
# `--header=Name: value` and `-H 'Name: value'`, as curl and others take headers.
_HEADER_FLAG = r"(?:--(?:[\w-]+-)?headers?|-H)"
_HEADER = re.compile(
    rf"(?P<flag>(?<![\w-]){_HEADER_FLAG}(?:=|\s+)(?:''|\\?['\"])?)(?P<name>[\w-]+)(?P<colon>\s*:\s*)(?P<value>[^'\"\\\n]+)"
)
_LONE_HEADER_FLAG = re.compile(rf"^ *- ['\"]?{_HEADER_FLAG}['\"]?$")
_PLAIN_HEADERS = re.compile(r"accept|content-|user-agent$|host$|cache-control$|connection$", re.IGNORECASE)
# A header by its own name, wherever it stands: in a command, in JSON, in what a server repeats of a request.
_CREDENTIAL_HEADER = re.compile(
    r"(?P<name>\b(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,40}(?:key|token|secret|auth|signature))"
    r"\\?['\"]?\s*[:=]\s*\[?\\?['\"]?)(?P<value>(?:[A-Za-z][\w-]*\s+)?[^\s'\"\\,;\]})]{6,})",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<scheme>\bBearer\s+)(?:(?=\S*\d)[^\s'\"\\,;*]{8,}|[^\s'\"\\,;*]{16,})", re.IGNORECASE)
_USER_INFO = re.compile(r"://[^\s/@'\"]+@")
_QUERY = re.compile(
    r"(?P<name>[?&;](?:sig|code|[\w.%-]{0,40}(?:signature|token|secret|passw(?:or)?d|pwd|key|credential|auth))=)"
    r"[^&\s'\"#\\]+",
    re.IGNORECASE,
)
# Who knows such an address may use it.
_WEBHOOK = re.compile(
    r"(?P<place>https?://(?:hooks\.[\w.-]{1,80}/|[\w.-]{0,80}webhook\.office\.com/|[\w.:-]{1,80}/(?:api/)?(?:web)?hooks/"
    r"|api\.telegram\.org/bot))[^\s'\"\\]+",
    re.IGNORECASE,
)
# "name": "value", also with the quotes that YAML doubles, and the same within a quoted text. The text may have been cut
# within the value. A backslash can be read in one way only: with two, 40 of them would take for ever.
_JSON = re.compile(
    r"""(?P<name>(?P<q>''|["'])(?P<key>[\w.-]{1,100})(?P=q)\s*:\s*)"""
    r"""(?P=q)(?P<value>(?:\\.|(?!(?P=q))[^\\])+)(?:(?P=q)|\\?$)"""
)
_ESCAPED_JSON = re.compile(
    r"""(?P<name>(?P<q>\\")(?P<key>[\w.-]{1,100})(?P=q)\s*:\s*)"""
    r"""(?P=q)(?P<value>(?:\\\\.|(?!(?P=q)|\\\\).)+)(?:(?P=q)|(?:\\\\)?$)"""
)
_PRIVATE_KEY = re.compile(
    r"(?P<begin>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----).*?"
    r"(?P<end>-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
# Names of objects begin like some keys (`sk-`, `nvapi-`): which of those is a key is up to `_is_a_key`.
_KNOWN = re.compile(
    r"\b(?:(?:hf|npm|gh[opsur])_[A-Za-z0-9]{12}|github_pat_|mpk_|(?:AKIA|ASIA)[A-Z0-9]{8}|AIza|ya29\.|k8s-aws-v1\."
    r"|(?P<plain>sk-[A-Za-z0-9_\-]{12}|glpat-|xox[abeprs]-|nvapi-))[A-Za-z0-9_\-]{8,}[A-Za-z0-9_.\-]*"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{4,}\.[\w-]*"
)
_ROW = re.compile(r"[A-Za-z0-9]{20,}")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_ENTRY = re.compile(r"^(?P<indent> *)- name: (?P<name>.+)$")

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRETS = ("password", "passwd", "passphrase", "secret", "credential", "apikey", "authorization")
_LAST = (*_SECRETS, "credentials", "token", "accesskey", "privatekey", "signature")
_LAST_ALONE = frozenset({"key", "keys", "pass", "pwd", "auth", "dsn"})
# `--auth-tokens`, where `--max-num-batched-tokens` counts those of a model.
_OF_TOKENS = frozenset({"access", "api", "auth", "bearer"})
# `--api-key-file`, `--secret-name` and `--allow-credentials` speak of a secret, and hold none.
_ABOUT = frozenset({"file", "path", "dir", "name", "ref", "mode", "type", "policy", "length", "ttl"})
# `--metrics-endpoint-auth=false`
_SWITCHED = frozenset({"true", "false"})
_SWITCHES = frozenset({"allow", "enable", "disable", "no", "skip", "use", "trust"})


def is_encrypted(content: str | bytes) -> bool:
    """Return whether the content of a file is encrypted with ansible-vault."""
    start = content[:64]
    text = start.decode("utf-8", "replace") if isinstance(start, bytes) else start
    return text.lstrip("\ufeff \r\n").startswith(_VAULT)


def secret_like(name: str) -> bool:
    """Return whether an environment variable or an argument of this name is likely to hold a secret."""
    return bool(_NAME.search(name)) or masked(name) != name


def masked(text: str) -> str:
    """YAML text as `manifest_text` writes it, or any other, without literal secrets.

    Those are values of environment variables, flags, headers, parameters of URLs and JSON whose names speak of one,
    private keys, addresses of webhooks, and tokens of a known shape.
    """
    text = _PRIVATE_KEY.sub(rf"\g<begin>{MASK}\g<end>", text)
    return "\n".join(_masked_text(line) for line in _without_values(text.split("\n")))


def _masked_text(line: str) -> str:
    line = _HEADER.sub(_header, line)
    line = _CREDENTIAL_HEADER.sub(rf"\g<name>{MASK}", line)
    line = _BEARER.sub(rf"\g<scheme>{MASK}", line)
    for pattern in (_JSON, _ESCAPED_JSON):
        line = pattern.sub(_json, line)
    line = _FLAG.sub(_flag, line)
    line = _USER_INFO.sub(f"://{MASK}@", line)
    line = _WEBHOOK.sub(rf"\g<place>{MASK}", line)
    line = _QUERY.sub(rf"\g<name>{MASK}", line)
    return without_keys(line)


def without_keys(text: str) -> str:
    """Return a text with a mask in place of each key of a known form. All else stays."""
    return _KNOWN.sub(lambda found: MASK if _is_a_key(found) else found[0], text)


def holds_key(text: str) -> bool:
    """Return whether a text, such as a name, is or has in it a key of a known form."""
    return any(map(_is_a_key, _KNOWN.finditer(text)))


def _is_a_key(found: re.Match[str]) -> bool:
    """Return False for the name of an object that begins like a key, such as `sk-learn-large-6d4cf56db6`.

    A key has capitals and digits, or 20 letters and digits in a row, four of them digits, or it is a UUID.
    """
    if not found["plain"]:
        return True
    text = found[0]
    has_capitals = text != text.lower()
    return (
        (has_capitals and _digits(text) > 0)
        or any(_digits(row) >= 4 and not row.isdigit() for row in _ROW.findall(text))
        or _UUID.search(text) is not None
    )


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text))


def _header(found: re.Match[str]) -> str:
    return found[0] if _PLAIN_HEADERS.match(found["name"]) else f"{found['flag']}{found['name']}{found['colon']}{MASK}"


def _json(found: re.Match[str]) -> str:
    # The key of a label, a toleration or a selector says nothing.
    hides = found["key"] != "key" and _names_secret(found["key"])
    hides = hides and not _is_no_secret(found["key"], found["value"])
    return f"{found['name']}{found['q']}{MASK}{found['q']}" if hides else found[0]


def _flag(found: re.Match[str]) -> str:
    hides = _names_secret(found["name"]) and not _is_no_secret(found["name"], found["value"])
    return f"{found['flag']}{found['gap']}{MASK}" if hides else found[0]


def _names_secret(name: str) -> bool:
    """Return whether the name of a flag or a field says that its value is a secret, by its words."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[0] in _SWITCHES:
        return False
    last = words[-1]
    if last in _LAST_ALONE or last.endswith(_LAST) or (last == "tokens" and not _OF_TOKENS.isdisjoint(words)):
        return True
    return last not in _ABOUT and any(word.startswith(_SECRETS) for word in words)


def _is_no_secret(name: str, value: str) -> bool:
    """Return whether it is a switch, or a token of a model's vocabulary (`"eos_token": "</s>"`)."""
    said = value.strip("'\"")
    return said in _SWITCHED or (name.lower().endswith("token") and said.startswith(("<", "[")))


def _without_values(lines: list[str]) -> list[str]:
    """The lines, the `value:` of each secret-like variable masked, as the argument after a secret-like flag."""
    found: list[str] = []
    hidden: int | None = None
    entry: tuple[int, str] | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        if hidden is not None:
            if not line.strip() or indent > hidden:
                continue
            hidden = None
        named = _ENTRY.match(line)
        if named:
            entry = (len(named["indent"]) + 2, named["name"])
        elif entry and indent == entry[0] and line.lstrip().startswith("value:") and secret_like(entry[1]):
            found.append(" " * indent + f"value: {MASK}")
            hidden = indent
            continue
        elif (
            found
            and line.lstrip().startswith("- ")
            and "--" not in line[: indent + 5]
            and _takes_a_secret(found[-1], line)
        ):
            found.append(" " * indent + f"- {MASK}")
            hidden = indent
            continue
        found.append(line)
    return found


def _takes_a_secret(flag: str, value: str) -> bool:
    """Return whether a line of a list is the flag whose value, the next line, is a secret."""
    said = value.strip(" '\"").removeprefix("- ").strip(" '\"")
    if _LONE_HEADER_FLAG.match(flag):
        return not _PLAIN_HEADERS.match(said)
    lone = _LONE_FLAG.match(flag)
    return lone is not None and _names_secret(lone["name"]) and not _is_no_secret(lone["name"], said)
