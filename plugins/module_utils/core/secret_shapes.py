# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Key formats of providers and services. A key with a known format is masked in any text.

detect-secrets is not a dependency: it returns hashes of secrets instead of their positions, requires `requests`, and
supports no model provider except OpenAI.
"""

from __future__ import annotations

import re

_WORD = r"[A-Za-z0-9_\-]"
_ALNUM = "[A-Za-z0-9]"
_HEX = "[0-9a-fA-F]"
_PREFIXES = {
    # Hugging Face, Perplexity, Cerebras, Tavily, GitHub, Artifactory, Stripe, Linear, New Relic, PostHog, Lambda.
    f"{_ALNUM}{{16}}": "api_org_ pplx- csk- tvly-(?:dev-|prod-)? gh[opsur]_ AKCp "
    "(?:sk|rk)_(?:live|test)_ whsec_ lin_(?:api|oauth)_ NRAK- ph[cx]_ secret_lambda_",
    # Together, Pinecone, Weights & Biases, Google, Docker, PyPI, Atlassian, Square, Grafana, Sentry, Vault, Terraform,
    # Supabase, Hugging Face, Heroku.
    f"{_WORD}{{16}}": r"tgp_v1_ pcsk_ wandb_v1_ GOCSPX- dckr_[po]at_ pypi-AgE AT(?:ATT3|CTT3|BB) sq0[a-z]{3}- "
    rf"gl(?:sa|c)_ sntry[su]_ hv[bsr]\. {_ALNUM}{{14}}\.atlasv1\. sb(?:p|_secret)_ hf_oauth_ HRKU-AA",
    # The fleet's API keys, Google, EKS, GitHub, Slack, Tailscale.
    f"{_WORD}{{8}}": r"mpk_ AIza ya29\. k8s-aws-v1\. github_pat_ xapp-[0-9]- tskey-[a-z]+-",
    # LangSmith, DigitalOcean, Databricks, RubyGems, Shopify, Postman, Pulumi, ElevenLabs.
    f"{_HEX}{{16}}": "lsv2_[ps][tk]_ do[opr]_v1_ dapi rubygems_ shp(?:at|ca|pa|ss)_ PMAK- pul- sk_",
}
"""Prefixes that only keys have, by the pattern that follows them."""
_SURE = (
    *(f"(?:{'|'.join(prefixes.split())}){pattern}" for pattern, prefixes in _PREFIXES.items()),
    # AWS, Google, Azure.
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}",
    r"ABSK[A-Za-z0-9+/]{40}",
    rf"1//0{_WORD}{{30}}",
    r"[A-Za-z0-9_~.]{3}[78]Q~[A-Za-z0-9_~.\-]{31}",
    # SendGrid, Square, Telegram, Discord, Twilio, Mailgun, Notion, Airtable, Fly, age.
    rf"SG\.{_WORD}{{16,64}}\.{_WORD}{{16}}",
    rf"EAAA{_WORD}{{56}}",
    rf"[0-9]{{8,10}}:AA{_WORD}{{30}}",
    rf"[MNO]{_WORD}{{22,27}}\.{_WORD}{{6}}\.{_WORD}{{25}}",
    r"(?:SK|key-)[0-9a-f]{32}",
    rf"(?:ntn|secret)_{_ALNUM}{{40}}",
    rf"pat{_ALNUM}{{14}}\.[0-9a-f]{{32}}",
    rf"fm[12]_{_WORD}{{40}}",
    r"AGE-SECRET-KEY-1[0-9A-Z]{40}",
    # A private key in Base64: `-----BEGIN`, and the text before `PRIVATE KEY`.
    r"LS0tLS1CRUdJTi(?:BSU0E|BQUklWQVRF|BFQyBQ|BPUEVOU1NI|BFTkNS|BEU0EgU)[A-Za-z0-9+/]{8}",
)
# Object names also begin like these; `_is_key` decides.
_PLAIN = (
    rf"sk-{_WORD}{{20}}",
    rf"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|ffct)-{_WORD}{{8}}",
    rf"xox[abeprs]-{_WORD}{{8}}",
    rf"nvapi-{_WORD}{{8}}",
)
# Hugging Face, Groq, Replicate, xAI, Fireworks, Jina, npm, RunPod, Anyscale, Modal, Voyage. Names of images and models
# also begin like these; `_is_key` decides.
_MIXED = (
    rf"(?:hf_|gsk_|r8_|xai-|fw_|jina_|npm_|rpa_|esecret_){_ALNUM}{{16,}}",
    rf"a[ks]-{_ALNUM}{{22}}(?![\w-])",
    rf"pa-{_WORD}{{40,}}",
)
_KNOWN = re.compile(
    rf"(?<![A-Za-z0-9_])(?:(?:{'|'.join(_SURE)})|(?P<plain>{'|'.join(_PLAIN)})|(?P<mixed>{'|'.join(_MIXED)}))[A-Za-z0-9_.\-+/~]*=*"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{4,}(?:\.[\w-]*){1,3}"
)
_ROW = re.compile(r"[A-Za-z0-9]{20,}")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


def known_keys(text: str) -> list[re.Match[str]]:
    """Return the matches of keys of a known format in a text."""
    return [match for match in _KNOWN.finditer(text) if _is_key(match)]


def mask_keys(text: str, mask: str) -> str:
    """Return the text with all keys of known formats masked."""
    return _KNOWN.sub(lambda match: mask if _is_key(match) else match[0], text)


def _is_key(match: re.Match[str]) -> bool:
    """Return False for the name of an object that begins like a key, such as `sk-learn-large-6d4cf56db6`.

    A key has capitals and digits, or 20 letters and digits in a row, four of them digits, or it is a UUID. A key of
    `_MIXED` has capitals and digits, or many of one of them.
    """
    if match["mixed"]:
        key = re.split("[_-]", match["mixed"], maxsplit=1)[1]
        capitals = sum(map(str.isupper, key))
        # Names of types have a capital in each word: `fw_TrainingOperatorImages`.
        return (capitals > 0 and digits(key) > 0) or capitals * 5 > len(key) or digits(key) >= 8
    if not match["plain"]:
        return True
    text = match[0]
    has_capitals = text != text.lower()
    return (
        (has_capitals and digits(text) > 0)
        or any(digits(row) >= 4 and not row.isdigit() for row in _ROW.findall(text))
        or _UUID.search(text) is not None
    )


def digits(text: str) -> int:
    """Return the number of digits in a text."""
    return sum(map(str.isdigit, text))
