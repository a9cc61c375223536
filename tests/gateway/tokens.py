# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An issuer of JSON Web Tokens (RFC 7519) for tests, with its public keys (RFC 7517)."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa


class Issuer:
    """An issuer with one key."""

    def __init__(self, url: str, audience: str) -> None:
        self.url, self.audience = url, audience
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def jwks(self) -> str:
        numbers = self._key.public_key().public_numbers()
        n, e = (_encoded(number.to_bytes((number.bit_length() + 7) // 8)) for number in (numbers.n, numbers.e))
        return json.dumps({"keys": [{"kty": "RSA", "kid": "one", "alg": "RS256", "use": "sig", "n": n, "e": e}]})

    def token(self, subject: str = "", *, algorithm: str = "RS256", lives: int = 86400, **claims: Any) -> str:
        """A token that lives for so many seconds; `claims` replace those of the issuer, None leaves one out."""
        known = {"iss": self.url, "aud": self.audience, "exp": int(time.time()) + lives, "sub": subject, **claims}
        given = {name: value for name, value in known.items() if value not in ("", None)}
        header = {"alg": algorithm, "typ": "JWT", "kid": "one"}
        text = ".".join(_encoded(json.dumps(part).encode()) for part in (header, given))
        if algorithm == "none":
            return f"{text}."
        return f"{text}.{_encoded(self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
