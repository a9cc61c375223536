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

# `--api-key=value` and `--api-key value`. The next word is a value only if it is not a flag itself.
_FLAG = re.compile(r"(?P<flag>(?<![\w.-])--?(?P<name>[A-Za-z][\w.-]*))(?P<gap>=|\s+(?!-))(?P<value>\S+)")
# `["--api-key", "value"]` and `[--api-key, value]`
_FLAG_IN_LIST = re.compile(
    r"""(?P<flag>(?P<q>\\?["'])?(?<![\w.-])--?(?P<name>[A-Za-z][\w.-]{0,80})(?(q)(?P=q)))(?P<gap>\s{0,8},\s{0,8}(?(q)(?P=q)))(?!-)"""
    r"""(?P<value>(?(q)(?:(?!(?P=q))(?:\\["\\]|.))+|[^\s,\]"']+(?=\s{0,8}[,\]])))"""
)
_LONE_FLAG = re.compile(r"^ *- ['\"]?(?P<flag>--?(?P<name>[A-Za-z][\w.-]*))['\"]?$")
# `--header=Name: value` and `-H 'Name: value'`, the syntax of headers in curl and other programs.
_HEADER_FLAG = r"(?:--(?:[\w-]+-)?headers?|-H)"
_HEADER = re.compile(
    rf"(?P<flag>(?<![\w-]){_HEADER_FLAG}(?:=|\s+)(?:''|\\?['\"])?)(?P<name>[\w-]+)(?P<colon>\s*:\s*)(?P<value>[^'\"\\\n]+)"
)
_LONE_HEADER_FLAG = re.compile(rf"^ *- ['\"]?{_HEADER_FLAG}['\"]?$")
_PLAIN_HEADERS = re.compile(r"accept|content-|user-agent$|host$|cache-control$|connection$", re.IGNORECASE)
# `username="a"` of Digest and `id=1` of a cookie. A value that is not quoted is not empty, so that Base64 is one value.
_PARAMETER = r"[\w.-]{1,80}=(?:\\?\"[^\"\\\n]*\\?\"|[^\s,;'\"\\]+)"
# A header with a known name in any text: in a command, in JSON, in a request that a server repeats.
_CREDENTIAL_HEADER = re.compile(
    r"(?P<name>\b(?:(?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]{0,40}(?:key|token|secret|auth|signature))"
    r"\\?['\"]?\s*[:=]\s*\[?\\?['\"]?)"
    rf"(?P<value>(?:[A-Za-z][\w-]*\s+)?{_PARAMETER}(?:\s*[,;]\s*{_PARAMETER})*"
    r"|(?:[A-Za-z][\w-]*\s+)?[^\s'\"\\,;\]})]{6,})",
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
# "name": "value", also with the quotes that YAML doubles, and inside a quoted text. The text might be truncated within
# the value. A backslash has only one match: with two matches, 40 backslashes would take exponential time.
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
    r"""(?<![\w.$@%/-])(?P<name>\.?[A-Za-z_][\w.-]{0,80})(?P<gap>\\?["']?\]?[ \t]{0,8}(?:=>|:=|=|:(?!:))[ \t]{0,8})"""
    r"""(?P<value>"(?:[^"\\\n]|\\.){0,4000}"?|'[^'\n]{0,4000}'?|[^\s;,&'"{}\[\]<>()|]+)"""
)
# The part of a masked value after a separator, such as `&b` of `a&b`. `,name=value` is another assignment.
_SEPARATORS = r";,&{}\[\]<>()|"
_REMAINDER = re.compile(
    rf"""{re.escape(MASK)}(?:(?:[{_SEPARATORS}]+|['"](?=\w))(?![\w.$-]{{1,80}}["']?[:=]|/)[^\s'"{_SEPARATORS}]+)+"""
)
_END_OF_LINE = re.compile(r"\S*[ \t]*(?:#.*)?\Z")
_MARKUP = re.compile(r"(?P<name><(?P<key>[A-Za-z][\w.-]{0,60})>)(?P<value>[^<\s]{1,500})(?=</)")
# {"name": "HF_TOKEN", "value": "..."}, the form of variables in JSON and in flow style, in any order, and `setx NAME`.
_COLON = r"""\\?["']?\s{0,8}[:=]\s{0,8}"""
_VALUE = r"""\\"(?:(?!\\").)+\\"|"(?:[^"\\]|\\.)+"|'[^']+'|\\?["']?[^"',}\]\s\\]"""
_QUOTED_NAME = rf"""\bname{_COLON}\\?["']?(?P<name>[\w.-]{{1,100}})\\?["']?"""
_COMMA = r"""\s{0,8},\s{0,8}\\?["']?"""
_VARIABLES = tuple(
    re.compile(f"(?P<all>{start})(?P<value>{_VALUE}{{1,{length}}})(?P<rest>{end})")
    for start, length, end in (
        (rf"{_QUOTED_NAME}{_COMMA}value{_COLON}", 4000, ""),
        (rf"\bvalue{_COLON}", 300, _COMMA + _QUOTED_NAME),
        (r"\b(?:setx|setenv|ENV)\s{1,8}(?P<name>\w{1,80})\s{1,8}(?!=)", 4000, ""),
    )
)
_LITERAL = re.compile(
    r"""(?P<all>--from-literal[= ]['"]?[\w.-]{1,253}=)(?![A-Z]+\b)(?:"[^"\n]*"?|'[^'\n]*'?|[^\s'"]+)"""
)
# User name and password of curl and wget, and the password of programs with a short password flag.
_LOGIN = re.compile(
    r"(?P<all>(?<!\S)(?:-[uU]|--(?:proxy-)?user)[ =]['\"]?[^\s:'\"]{1,100}:"
    r"|\bcurl\b[^\n|;&]{0,120}?\s-[a-zA-Z]{0,8}[uU]['\"]?[^\s:'\"-][^\s:'\"]{0,100}:)(?P<value>[^\s'\"]{3,})"
    r"|(?P<short>\b(?:login|sshpass|mysql\w{0,9}|redis-cli)\b[^\n|;&]{0,120}?\s-[pa]\s?)(?P<word>[^\s'\"]{3,})"
    r"|(?P<netrc>\blogin\s{1,8}\S{1,100}\s{1,8}password\s{1,8})(?P<netrc_password>\S+)"
)
_BASIC = re.compile(r"(?P<scheme>\bBasic\s{1,8})(?P<value>[A-Za-z0-9+/]{8,}={0,2})", re.IGNORECASE)
# A password with a slash. A port or a digest of an image is not a password.
_SLASHED_USER_INFO = re.compile(r"://[^\s/@:'\"]{0,100}:(?!\d{1,5}/)[^\s@'\"]{1,256}@(?!sha256:)")
_BLOCK = re.compile(r"^(?P<indent>[ -]*)(?P<name>[\w.-]{1,80}): *[|>][-+0-9]*$")
# The deeper lines after a field, and entries of lists with a name and a value in either order.
_DEEPER = r"(?:(?:\n *$)*\n(?P=indent) +\S.*)*"
_ENTRY_VALUE = rf"(?P<value>(?: .*)?{_DEEPER.replace(' +', '   +')})"
_ENTRY_NAME = r"name: ['\"]?(?P<name>[^\s'\"]+).*"
_ENTRIES = (
    re.compile(rf"(?m)^(?P<all>(?P<indent> *)- {_ENTRY_NAME}\n(?P=indent)  value:){_ENTRY_VALUE}(?P<rest>)"),
    re.compile(rf"(?m)^(?P<all>(?P<indent> *)- value:){_ENTRY_VALUE}(?P<rest>\n(?P=indent)  {_ENTRY_NAME})"),
)
# Objects of kind Secret and their values, in YAML and in JSON.
_SECRET = re.compile(r"""\bkind\\?["']?\s{0,8}:\s{0,8}\\?["']?Secret(?![\w-])""")
_DATA = re.compile(rf"(?m)^(?P<head>(?P<indent>[ -]*)(?:data|stringData):)(?P<values>(?: .*)?{_DEEPER})")
_DATUM = re.compile(rf"(?m)^(?P<name> (?=\{{)|(?P<indent> +)[^\s:{{][^:\n]*: )(?!['\"]?\*{{8}}|$).+{_DEEPER}")
_JSON_DATA = re.compile(
    r"""(?P<name>(?P<q>\\?["'])(?:data|stringData)(?P=q)\s{0,8}:\s{0,8})"""
    r"""\{(?:\\"(?:(?!\\").)*(?:\\")?|"(?:\\.|[^"\\])*"?|[^{}"])*\}?"""
)

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRETS = ("password", "passwd", "passphrase", "secret", "credential", "apikey", "authorization")
_LAST = (*_SECRETS, "credentials", "token", "accesskey", "privatekey", "accountkey", "signature", "passcode", "jwt")
_LAST_ALONE = frozenset({"key", "keys", "pass", "pwd", "pw", "auth", "dsn", "pat", "dockerconfigjson", "dockercfg"})
# `--auth-tokens` contains secrets, but `--max-num-batched-tokens` counts tokens of a model.
_OF_TOKENS = frozenset({"access", "api", "auth", "bearer", "hf", "github", "gitlab", "user"})
_ABOUT_SECRETS = (
    "file path dir name names ref refs mode type policy length ttl selector namespace namespaces method source url uri "
    "endpoint id version provider manager class store count limit enabled required prefix header env driver template "
    "size ns subnet subnets block timeout interval days seconds rate"
)
_ABOUT = frozenset(_ABOUT_SECRETS.split())
"""Last words of names that refer to a secret but have non-secret values: `--api-key-file`, `KEY_BLOCK_SIZE`."""
_IN_VARIABLE = re.compile(
    r"(?<![a-z])(?:auth|dsn|pat|pw)(?![a-z])|(?:token|pwd|creds|(?<!com)(?<!by)pass|(?<!mon)(?<!hot)keys?)(?![a-z])"
)
# A value of a name such as `auth` or `secret` that names an object, and words that are no value.
_OBJECT_NAME = re.compile(r"[a-z]+(?:[.-][a-z]+)*\Z")
_NO_VALUES = ("true", "false", "null", "none", "yes", "no", "on", "off", "required", "optional", "~", "...", "…")
# Masks, `<placeholder>`, `%s`, `%(name)s`, `%NAME%`, `$NAME`, `${NAME}`, `$(command)`, and paths. Keys and passwords
# can also begin with a slash.
_REFERENCE = re.compile(
    r"\W?\Z|\*{8}|\*+\Z|%(?:[({]|[a-z]\Z|\w+%\Z)|\{\{|`|(?:\.\.?|~)/"
    r"|(?:<[^>]*>|\{[^}]*\}|\[[^\]]*\]|\([^)]*\))\W*\Z"
    r"|\$(?:[{(]|(?:[A-Z_][A-Z0-9_]*|[A-Za-z_.:]+)(?=[/,;)\]}\"'\\]|[:.-]\$|\Z)|[\d@?*]\Z)"
    r"|/(?!(?=(?:[^0-9]*[0-9]){4})(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/_=-]{23,}\Z"
    r"|(?=[^/]*[0-9])(?=[^/]*[A-Za-z])[^/]{7,}\Z)"
)
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
_SURE_PLACEHOLDER = re.compile(r"(?:[A-Z]+_)?(?:PASSWORD|SECRET|VALUE)\Z|(?:KEY|TOKEN|FILE)\Z")
# Names of passwords. Their values can be equal to names of files.
_PASSWORD = re.compile(r"(?:password|passwd|passphrase|pwd|passcode)\Z", re.IGNORECASE)
_RANDOM_KEY = re.compile(r"(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?=[^0-9]*[0-9])[A-Za-z0-9+/_=-]{24,}\Z|[0-9a-f]{32,}\Z")
_SWITCHES = frozenset({"allow", "enable", "disable", "no", "skip", "use", "trust"})


def is_encrypted(content: str | bytes) -> bool:
    """Return True if the content of a file is encrypted with ansible-vault."""
    start = content[:64]
    text = start.decode("utf-8", "replace") if isinstance(start, bytes) else start
    return text.lstrip("\ufeff \r\n").startswith(_VAULT)


def secret_like(name: str) -> bool:
    """Return True if an environment variable or argument of this name probably contains a secret."""
    segments = [segment.lower() for segment in _WORDS.findall(name)]
    if not segments or segments[0] in _SWITCHES or segments[-1] in _ABOUT:
        return masked(name) != name
    return _IN_VARIABLE.search(name.lower()) is not None or _names_secret(name) or masked(name) != name


def masked(text: str) -> str:
    """Return a text, such as YAML, with masks for literal secrets.

    Secrets are values of environment variables, flags, headers, URL parameters and JSON fields with the name of a
    secret, private keys, webhook URLs, and tokens of a known format.
    """
    text = _PRIVATE_KEY.sub(rf"\g<begin>{MASK}\g<end>", text)
    text = "".join(map(_without_data, re.split(r"(?m)^(?=---|- )", text)))
    for pattern in _ENTRIES:
        text = pattern.sub(lambda entry: _pair(entry, " "), text)
    return "\n".join(_masked_text(line) for line in _without_values(text.split("\n")))


def _without_data(document: str) -> str:
    """Return a manifest with masks for the values of a Secret."""
    if not _SECRET.search(document):
        return document
    document = _JSON_DATA.sub(rf"\g<name>\g<q>{MASK}\g<q>", document)
    return _DATA.sub(lambda data: data["head"] + _DATUM.sub(rf"\g<name>{MASK}", data["values"]), document)


def _masked_text(line: str) -> str:
    line = _CREDENTIAL_HEADER.sub(rf"\g<name>{MASK}", line)
    line = _HEADER.sub(_header, line)
    line = _BEARER.sub(rf"\g<scheme>{MASK}", line)
    for pattern in (_JSON, _ESCAPED_JSON):
        line = pattern.sub(_json, line)
    line = _FLAG_IN_LIST.sub(_flag, _FLAG.sub(_flag, line))
    line = _USER_INFO.sub(f"://{MASK}@", line)
    line = _SLASHED_USER_INFO.sub(f"://{MASK}@", line)
    line = _BASIC.sub(_basic, line)
    line = _LOGIN.sub(_login, line)
    if "configmap" not in line:
        line = _LITERAL.sub(rf"\g<all>{MASK}", line)
    if _HINT.search(line):
        for pattern in _VARIABLES:
            line = pattern.sub(_pair, line)
        line = _MARKUP.sub(_markup, line)
        line = _REMAINDER.sub(MASK, _ASSIGNED.sub(_assigned, line))
    line = _WEBHOOK.sub(rf"\g<place>{MASK}", line)
    line = _QUERY.sub(rf"\g<name>{MASK}", line)
    return without_keys(line)


def without_keys(text: str) -> str:
    """Return the text with all keys of known formats masked."""
    return mask_keys(text, MASK)


def holds_key(text: str) -> bool:
    """Return True if a text, such as a name, contains a key of a known format."""
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
    """Mask the value after `Basic` if it is a user name and a password in Base64."""
    try:
        decoded = base64.b64decode(match["value"], validate=True)
    except ValueError:
        return match[0]
    return f"{match['scheme']}{MASK}" if b":" in decoded else match[0]


def _login(match: re.Match[str]) -> str:
    value = match["value"] or match["word"] or match["netrc_password"]
    # IDs of users and groups, and ports, are no passwords.
    return match[0] if value.isdigit() or _REFERENCE.match(value) else f"{match[0].removesuffix(value)}{MASK}"


def _pair(match: re.Match[str], gap: str = "") -> str:
    """Mask the value of a variable, between its quotes."""
    value = match["value"].removeprefix(gap)
    quote = value[:2] if value.startswith("\\") else value[:1] if value.startswith(("'", '"')) else ""
    return f"{match['all']}{gap}{quote}{MASK}{quote}{match['rest']}" if secret_like(match["name"]) else match[0]


def _markup(match: re.Match[str]) -> str:
    hides = _names_secret(match["key"]) and not _is_no_value(match["key"], match["value"], "")
    return f"{match['name']}{MASK}" if hides else match[0]


def _assigned(match: re.Match[str]) -> str:
    """Mask the value of an assignment if its name is the name of a secret."""
    name, gap, value = match["name"], match["gap"], match["value"]
    quote = value[0] if value[0] in "'\"" else ""
    content = value.strip("'\"")
    if not _names_secret(name.removesuffix("-data").removesuffix("_data")):
        return match[0]
    last_word = _WORDS.findall(name)[-1].lower()
    if (
        _is_no_value(name, content, "" if quote else gap)
        or _is_no_secret(name, value)
        or (last_word.endswith("token") and content.isdigit())
    ):
        return match[0]
    # Only the first columns are compared, so that the time is linear.
    is_line = match.start() < 200 and not match.string[: match.start()].strip(" -")
    is_line = is_line and _END_OF_LINE.match(match.string, match.end()) is not None
    if name.lower() in ("key", "keys"):
        hides = _RANDOM_KEY.match(content) is not None
    elif not quote and "=" not in gap and not is_line:
        # In a sentence: `token: must not be empty`, `credentials: Permission denied`.
        hides = len(content) >= 6 and _is_random(content)
    else:
        # `secret: edge-kubeconfig` names a Secret.
        names_object = last_word in _NAMES_OBJECTS and name != name.upper()
        hides = not (names_object and _OBJECT_NAME.match(content))
    return f"{name}{gap}{quote}{MASK}{quote}" if hides else match[0]


def _is_random(text: str) -> bool:
    """Return True if a text is not a word: it has letters with digits, or capitals after the first character."""
    has_letters = any(map(str.isalpha, text))
    return has_letters and (digits(text) > 0 or text[1:] != text[1:].lower())


def _is_no_value(name: str, value: str, gap: str) -> bool:
    """Return True if a value means "none", or is a reference or a file. `gap` is empty before a quoted value."""
    if gap and value.startswith("@"):
        # `curl --data token=@file`
        return ":" in gap or _FILE.match(value[1:]) is not None or not _is_random(value[1:])
    is_marked = ":" in gap and value.startswith(("*", "!", "#"))
    is_word = value.lower().rstrip(".,:`") in _NO_VALUES or value.startswith(("http://", "https://", "lookup("))
    patterns = (_REFERENCE, _SURE_PLACEHOLDER) if _PASSWORD.search(name) else (_REFERENCE, _PLACEHOLDER, _FILE)
    return is_marked or is_word or any(pattern.match(value) for pattern in patterns)


def _names_secret(name: str) -> bool:
    """Return True if the words of a flag or field name indicate a secret value."""
    segments = [segment.lower() for segment in _WORDS.findall(name)]
    if not segments or segments[0] in _SWITCHES:
        return False
    final = segments[-1]
    if final in ("key", "keys") and not _NO_SECRET_KEYS.isdisjoint(segments):
        return False
    if final in _LAST_ALONE or final.endswith(_LAST) or (final == "tokens" and not _OF_TOKENS.isdisjoint(segments)):
        return True
    return final not in _ABOUT and any(segment.startswith(_SECRETS) for segment in segments)


def _is_no_secret(name: str, value: str) -> bool:
    """Return True if a value is a switch, a file, or a token of a model's vocabulary (`"eos_token": "</s>"`)."""
    value = value.strip("'\"")
    is_vocabulary = name.lower().endswith("token") and value.startswith(("<", "["))
    return (
        is_vocabulary or value in ("true", "false") or (_FILE.match(value) is not None and not _PASSWORD.search(name))
    )


def _without_values(lines: list[str]) -> list[str]:
    """Return the lines with masks for values of secret variables, and for arguments after secret flags."""
    masked_lines: list[str] = []
    hidden: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        if hidden is not None:
            if not line.strip() or indent > hidden:
                continue
            hidden = None
        block = _BLOCK.match(line) if line.endswith(("|", ">", "-", "+")) else None
        if block and _names_secret(block["name"]):
            masked_lines.append(line.rstrip("|>-+0123456789") + MASK)
            hidden = len(block["indent"])
            continue
        if masked_lines and line.startswith("- ", indent) and _takes_a_secret(masked_lines[-1], line):
            masked_lines.append(" " * indent + f"- {MASK}")
            hidden = indent
            continue
        masked_lines.append(line)
    return masked_lines


def _takes_a_secret(flag: str, value: str) -> bool:
    """Return True if a line of a list is a flag and the next line is its secret value."""
    if "--" in value[: len(value) - len(value.lstrip()) + 5]:
        return False
    value = value.strip(" '\"").removeprefix("- ").strip(" '\"")
    if _LONE_HEADER_FLAG.match(flag):
        return not _PLAIN_HEADERS.match(value)
    match = _LONE_FLAG.match(flag)
    return match is not None and _names_secret(match["name"]) and not _is_no_secret(match["name"], value)
