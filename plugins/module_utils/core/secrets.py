# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Masks for values that might be secrets."""

from __future__ import annotations

import base64
import re

from .secret_shapes import digits, known_keys, mask_keys

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
# A header with a known name in any text: in a command, in JSON, in a request that a server repeats.
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
# The URL contains the credential.
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
# `NAME=value`, `name: value`, `name => "value"`, with or without `export`: the name indicates a secret. The
# lengths of names and values are limited, so that the time is linear.
_ASSIGNED = re.compile(
    r"""(?<![\w.$@%/-])(?P<name>\.?[A-Za-z_][\w.-]{0,80})(?P<gap>\\?["']?[ \t]{0,8}(?:=>|:=|=|:(?!:))[ \t]{0,8})"""
    r"""(?P<value>"(?:[^"\\\n]|\\.){0,4000}"?|'[^'\n]{0,4000}'?|[^\s;,&'"{}\[\]<>()|]+)(?P<rest>[ \t]*(?:\#.*)?$)?"""
)
_MARKUP = re.compile(r"(?P<name><(?P<key>[A-Za-z][\w.-]{0,60})>)(?P<value>[^<\s]{1,500})(?=</)")
# {"name": "HF_TOKEN", "value": "..."}, as variables are in JSON and in flow style.
_PAIR = re.compile(
    r"""(?P<all>\bname["']?\s{0,8}[:=]\s{0,8}["']?(?P<name>[\w.-]{1,100})["']?\s{0,8},\s{0,8}["']?value["']?\s{0,8}[:=]"""
    r"""\s{0,8}["']?)(?P<value>[^"',}\]\s]+)"""
)
# User name and password of curl and wget, and the password of programs whose flag for it is short.
_LOGIN = re.compile(
    r"(?P<all>(?<!\S)(?:-u|--user)[ =]['\"]?[^\s:'\"]{1,100}:)(?P<value>[^\s'\"]{3,})"
    r"|(?P<short>\b(?:login|sshpass|mysql\w{0,9}|redis-cli)\b[^\n|;&]{0,120}?\s-[pa]\s?)(?P<word>[^\s'\"]{3,})"
    r"|(?P<netrc>\blogin\s{1,8}\S{1,100}\s{1,8}password\s{1,8})(?P<netrc_password>\S+)"
)
_BASIC = re.compile(r"(?P<scheme>\bBasic\s{1,8})(?P<value>[A-Za-z0-9+/]{8,}={0,2})", re.IGNORECASE)
# A password with a slash; a port or a digest of an image is none.
_SLASHED_USER_INFO = re.compile(r"://[^\s/@:'\"]{0,100}:(?!\d{1,5}/)[^\s@'\"]{1,256}@(?!sha256:)")
_BLOCK = re.compile(r"^(?P<indent>[ -]*)(?P<name>[\w.-]{1,80}): *[|>][-+0-9]*$")
_ENTRY = re.compile(r"^(?P<indent> *)- name: (?P<name>.+)$")

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRETS = ("password", "passwd", "passphrase", "secret", "credential", "apikey", "authorization")
_LAST = (*_SECRETS, "credentials", "token", "accesskey", "privatekey", "accountkey", "signature", "passcode", "jwt")
_LAST_ALONE = frozenset({"key", "keys", "pass", "pwd", "pw", "auth", "dsn", "pat", "dockerconfigjson", "dockercfg"})
# `--auth-tokens`, where `--max-num-batched-tokens` counts those of a model.
_OF_TOKENS = frozenset({"access", "api", "auth", "bearer"})
_ABOUT_SECRETS = (
    "file path dir name names ref refs mode type policy length ttl selector namespace namespaces method source url uri "
    "endpoint id version provider manager class store count limit enabled required prefix header env driver template"
)
_ABOUT = frozenset(_ABOUT_SECRETS.split())
"""Last words of names about a secret whose values are no secrets: `--api-key-file`, `--secret-name`."""
# A value of a name such as `auth` or `secret` that names an object, and words that are no value.
_OBJECT_NAME = re.compile(r"[a-z]+(?:[.-][a-z]+)*\Z")
_NO_VALUES = ("true", "false", "null", "none", "yes", "no", "on", "off", "required", "optional", "~", "...", "…")
# Expressions, references, paths, and the first characters of YAML blocks, comments and anchors.
_NO_VALUE_STARTS = ("$", "<", "*", "&", "|", ">", "!", "%", "#", "/", "./", "../", "~/", "@", "`", "{", "[", "(")
# `--metrics-endpoint-auth=false`
_NAMES_OBJECTS = frozenset({"secret", "secrets", "auth", "credential", "credentials", "key", "keys"})
_KEYS_OF_TABLES = (
    "topology metadata match label annotation sort primary foreign partition public cache config map field hash shard "
    "group index object idempotency routing"
)
_NO_SECRET_KEYS = frozenset(_KEYS_OF_TABLES.split())
"""First words of keys of maps and tables: `topologyKey`, `metadataKey`."""
_HINT = re.compile(r"token|secret|pass|pw|key|cred|auth|sign|jwt|dsn|pat|dockerc", re.IGNORECASE)
_FILE = re.compile(r"[\w.-]+\.(?:txt|key|pem|json|ya?ml|crt|cer|env|conf|toml|p12|jks)\Z")
_PLACEHOLDER = re.compile(r"(?:[A-Z]+_)?(?:KEY|TOKEN|PASSWORD|SECRET|FILE|VALUE)\Z")
_RANDOM_KEY = re.compile(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=[^0-9]*[0-9])[A-Za-z0-9+/_=-]{24,}\Z|[0-9a-f]{32,}\Z")
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
    """Return a text, such as YAML, with masks for literal secrets.

    Secrets are values of environment variables, flags, headers, URL parameters and JSON fields with the name of a
    secret, private keys, webhook URLs, and tokens of a known format.
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
    line = _SLASHED_USER_INFO.sub(f"://{MASK}@", line)
    line = _BASIC.sub(_basic, line)
    line = _LOGIN.sub(_login, line)
    if _HINT.search(line):
        line = _PAIR.sub(_pair, line)
        line = _MARKUP.sub(_markup, line)
        line = _ASSIGNED.sub(_assigned, line)
    line = _WEBHOOK.sub(rf"\g<place>{MASK}", line)
    line = _QUERY.sub(rf"\g<name>{MASK}", line)
    return without_keys(line)


def without_keys(text: str) -> str:
    """Return the text with all keys of known formats masked."""
    return mask_keys(text, MASK)


def holds_key(text: str) -> bool:
    """Return whether a text, such as a name, contains a key of a known format."""
    return bool(known_keys(text))


def _header(match: re.Match[str]) -> str:
    return match[0] if _PLAIN_HEADERS.match(match["name"]) else f"{match['flag']}{match['name']}{match['colon']}{MASK}"


def _json(match: re.Match[str]) -> str:
    # `key` is also the key of a label, a toleration or a selector.
    hides = match["key"] != "key" and _names_secret(match["key"])
    hides = hides and not _is_no_secret(match["key"], match["value"])
    return f"{match['name']}{match['q']}{MASK}{match['q']}" if hides else match[0]


def _flag(match: re.Match[str]) -> str:
    hides = _names_secret(match["name"]) and not _is_no_secret(match["name"], match["value"])
    return f"{match['flag']}{match['gap']}{MASK}" if hides else match[0]


def _basic(match: re.Match[str]) -> str:
    """Mask what follows `Basic` if it is a user name and a password in Base64."""
    try:
        decoded = base64.b64decode(match["value"], validate=True)
    except ValueError:
        return match[0]
    return f"{match['scheme']}{MASK}" if b":" in decoded else match[0]


def _login(match: re.Match[str]) -> str:
    value = match["value"] or match["word"] or match["netrc_password"]
    # IDs of users and groups, and ports, are no passwords.
    is_none = value.isdigit() or value.startswith(_NO_VALUE_STARTS) or value == MASK
    return match[0] if is_none else f"{match[0].removesuffix(value)}{MASK}"


def _pair(match: re.Match[str]) -> str:
    return f"{match['all']}{MASK}" if secret_like(match["name"]) else match[0]


def _markup(match: re.Match[str]) -> str:
    hides = _names_secret(match["key"]) and not _is_no_value(match["value"])
    return f"{match['name']}{MASK}" if hides else match[0]


def _assigned(match: re.Match[str]) -> str:
    """Mask the value of an assignment if its name is the name of a secret."""
    name, gap, value = match["name"], match["gap"], match["value"]
    quote = value[0] if value[0] in "'\"" else ""
    content = value.strip("'\"")
    if not _names_secret(name.removesuffix("-data").removesuffix("_data")) or _is_no_value(content):
        return match[0]
    last_word = _WORDS.findall(name)[-1].lower()
    if _is_no_secret(name, value) or (last_word.endswith("token") and content.isdigit()):
        return match[0]
    is_line = match["rest"] is not None and not match.string[: match.start()].strip(" -")
    if name.lower() in ("key", "keys"):
        hides = _RANDOM_KEY.match(content) is not None
    elif not quote and "=" not in gap and not is_line:
        # In a sentence: `token: must not be empty`, `credentials: Permission denied`.
        hides = len(content) >= 6 and _is_random(content)
    else:
        # `secret: edge-kubeconfig` names a Secret.
        names_object = last_word in _NAMES_OBJECTS and name != name.upper()
        hides = not (names_object and _OBJECT_NAME.match(content))
    return f"{name}{gap}{quote}{MASK}{quote}{match['rest'] or ''}" if hides else match[0]


def _is_random(text: str) -> bool:
    """Return whether a text is no word: it has digits, and letters, or capitals within it."""
    has_letters = any(map(str.isalpha, text))
    return has_letters and (digits(text) > 0 or text[1:] != text[1:].lower())


def _is_no_value(value: str) -> bool:
    """Return whether the value of an assignment is a word for none, a reference, an expression or a path."""
    return (
        not value
        or value == MASK
        or value.lower().rstrip(".,:`") in _NO_VALUES
        or _FILE.match(value) is not None
        or _PLACEHOLDER.match(value) is not None
        or value.startswith(_NO_VALUE_STARTS)
        or value.startswith(("http://", "https://", "lookup"))
    )


def _names_secret(name: str) -> bool:
    """Return whether the words of a flag or field name indicate a secret value."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words or words[0] in _SWITCHES:
        return False
    last = words[-1]
    if last in ("key", "keys") and not _NO_SECRET_KEYS.isdisjoint(words):
        return False
    if last in _LAST_ALONE or last.endswith(_LAST) or (last == "tokens" and not _OF_TOKENS.isdisjoint(words)):
        return True
    return last not in _ABOUT and any(word.startswith(_SECRETS) for word in words)


def _is_no_secret(name: str, value: str) -> bool:
    """Return whether a value is a switch, a file, or a token of a model's vocabulary (`"eos_token": "</s>"`)."""
    value = value.strip("'\"")
    is_vocabulary = name.lower().endswith("token") and value.startswith(("<", "["))
    return is_vocabulary or value in ("true", "false") or _FILE.match(value) is not None


def _without_values(lines: list[str]) -> list[str]:
    """Return the lines with masks for values of secret variables, and for arguments after secret flags."""
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
        block = _BLOCK.match(line) if line.endswith(("|", ">", "-", "+")) else None
        if block and _names_secret(block["name"]) and not named:
            found.append(line.rstrip("|>-+0123456789") + MASK)
            hidden = len(block["indent"])
            continue
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
    value = value.strip(" '\"").removeprefix("- ").strip(" '\"")
    if _LONE_HEADER_FLAG.match(flag):
        return not _PLAIN_HEADERS.match(value)
    match = _LONE_FLAG.match(flag)
    return match is not None and _names_secret(match["name"]) and not _is_no_secret(match["name"], value)
