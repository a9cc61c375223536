# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Formats of the keys of providers and services, by which a key is found wherever it is.

detect-secrets 1.5 (Apache-2.0) was considered as the source. It is no dependency: it finds secrets in lines of files
and returns hashes of them, where masks need their places in any text, it depends on `requests`, and it knows no key of
the providers of models but that of OpenAI. The formats that both have are the same.
"""

from __future__ import annotations

import re

_WORD = r"[A-Za-z0-9_\-]"
_ALNUM = "[A-Za-z0-9]"

# Nothing else begins like these.
_SURE = (
    # Providers of models: Hugging Face, Groq, Replicate, xAI, Perplexity, Fireworks, Together, Cerebras, Pinecone,
    # LangSmith, Tavily, Jina, Weights & Biases.
    rf"hf_{_ALNUM}{{20}}",
    rf"api_org_{_ALNUM}{{20}}",
    rf"gsk_{_ALNUM}{{20}}",
    rf"r8_{_ALNUM}{{20}}",
    rf"xai-{_ALNUM}{{32}}",
    rf"pplx-{_ALNUM}{{32}}",
    rf"fw_{_ALNUM}{{20}}",
    rf"tgp_v1_{_WORD}{{20}}",
    rf"csk-{_ALNUM}{{32}}",
    rf"pcsk_{_WORD}{{20}}",
    r"lsv2_[ps][tk]_[0-9a-f]{16}",
    rf"tvly-(?:dev-|prod-)?{_ALNUM}{{20}}",
    rf"jina_{_ALNUM}{{20}}",
    rf"wandb_v1_{_WORD}{{20}}",
    # The fleet's own.
    rf"mpk_{_WORD}{{8}}",
    # Clouds: AWS, Google, Azure, DigitalOcean, Databricks.
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}",
    r"ABSK[A-Za-z0-9+/]{40}",
    rf"AIza{_WORD}{{8}}",
    rf"ya29\.{_WORD}{{8}}",
    rf"GOCSPX-{_WORD}{{20}}",
    rf"1//0{_WORD}{{30}}",
    r"k8s-aws-v1\.[A-Za-z0-9_\-]{8}",
    r"[A-Za-z0-9_~.]{3}[78]Q~[A-Za-z0-9_~.\-]{31}",
    r"do[opr]_v1_[0-9a-f]{32}",
    r"dapi[0-9a-f]{32}",
    # Source code, packages and images: GitHub, npm, Docker, PyPI, RubyGems, Artifactory, Atlassian.
    rf"gh[opsur]_{_ALNUM}{{20}}",
    rf"github_pat_{_WORD}{{8}}",
    rf"npm_{_ALNUM}{{20}}",
    rf"dckr_[po]at_{_WORD}{{16}}",
    rf"pypi-AgE{_WORD}{{20}}",
    r"rubygems_[0-9a-f]{32}",
    rf"AKCp{_ALNUM}{{20}}",
    rf"AT(?:ATT3|CTT3|BB){_WORD}{{20}}",
    # Services: Slack, SendGrid, Square, Stripe, Shopify, Telegram, Discord, Twilio, Mailgun, Grafana, Sentry, Vault,
    # Tailscale, Linear, Notion, Postman, New Relic, Pulumi, Terraform, Supabase, PostHog, Airtable, Fly, age.
    rf"xapp-[0-9]-{_ALNUM}{{8}}",
    rf"SG\.{_WORD}{{16,64}}\.{_WORD}{{16}}",
    rf"sq0[a-z]{{3}}-{_WORD}{{16}}",
    rf"EAAA{_WORD}{{56}}",
    rf"(?:sk|rk)_(?:live|test)_{_ALNUM}{{16}}",
    rf"whsec_{_ALNUM}{{20}}",
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{20}",
    rf"[0-9]{{8,10}}:AA{_WORD}{{30}}",
    rf"[MNO]{_WORD}{{22,27}}\.{_WORD}{{6}}\.{_WORD}{{25}}",
    r"SK[0-9a-f]{32}",
    r"key-[0-9a-f]{32}",
    rf"gl(?:sa|c)_{_WORD}{{24}}",
    rf"sntry[su]_{_WORD}{{24}}",
    rf"hv[bsr]\.{_WORD}{{20}}",
    rf"tskey-[a-z]+-{_WORD}{{12}}",
    rf"lin_(?:api|oauth)_{_ALNUM}{{20}}",
    rf"(?:ntn|secret)_{_ALNUM}{{40}}",
    r"PMAK-[0-9a-f]{20}",
    rf"NRAK-{_ALNUM}{{20}}",
    r"pul-[0-9a-f]{40}",
    rf"{_ALNUM}{{14}}\.atlasv1\.{_WORD}{{20}}",
    rf"sb(?:p|_secret)_{_WORD}{{20}}",
    rf"ph[cx]_{_ALNUM}{{30}}",
    rf"pat{_ALNUM}{{14}}\.[0-9a-f]{{32}}",
    rf"fm[12]_{_WORD}{{40}}",
    r"AGE-SECRET-KEY-1[0-9A-Z]{40}",
    # A private key in Base64: `-----BEGIN`, and what precedes `PRIVATE KEY`.
    r"LS0tLS1CRUdJTi(?:BSU0E|BQUklWQVRF|BFQyBQ|BPUEVOU1NI|BFTkNS|BEU0EgU)[A-Za-z0-9+/]{8}",
)
# Names of objects begin like these, too: which of them is a key is up to `is_key`.
_PLAIN = (
    rf"sk-{_WORD}{{20}}",
    rf"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|ffct)-{_WORD}{{8}}",
    rf"xox[abeprs]-{_WORD}{{8}}",
    rf"nvapi-{_WORD}{{8}}",
)
_KNOWN = re.compile(
    rf"(?<![A-Za-z0-9_])(?:(?:{'|'.join(_SURE)})|(?P<plain>{'|'.join(_PLAIN)}))[A-Za-z0-9_.\-+/~]*=*"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{4,}(?:\.[\w-]*){1,3}"
)
_ROW = re.compile(r"[A-Za-z0-9]{20,}")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


def known_keys(text: str) -> list[re.Match[str]]:
    """Return the matches of keys of a known format in a text."""
    return [found for found in _KNOWN.finditer(text) if _is_key(found)]


def mask_keys(text: str, mask: str) -> str:
    """Return a text with a mask in place of each key of a known format."""
    return _KNOWN.sub(lambda found: mask if _is_key(found) else found[0], text)


def _is_key(found: re.Match[str]) -> bool:
    """Return False for the name of an object that begins like a key, such as `sk-learn-large-6d4cf56db6`.

    A key has capitals and digits, or 20 letters and digits in a row, four of them digits, or it is a UUID.
    """
    if not found["plain"]:
        return True
    text = found[0]
    has_capitals = text != text.lower()
    return (
        (has_capitals and digits(text) > 0)
        or any(digits(row) >= 4 and not row.isdigit() for row in _ROW.findall(text))
        or _UUID.search(text) is not None
    )


def digits(text: str) -> int:
    """Return the number of digits in a text."""
    return sum(map(str.isdigit, text))
