# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An authority for one control plane: certificates of servers and of users, and the kubeconfig files of users."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=1)
_SERVER_NAMES = (
    x509.DNSName("localhost"),
    x509.DNSName("kubernetes"),
    x509.DNSName("kubernetes.default.svc"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    x509.IPAddress(ipaddress.ip_address("::1")),
)
# Python 3.13 wants to see what the key of an authority is for.
_SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """A certificate authority of its own; its certificate is `certificate` (PEM) and the file ca.crt in `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}-authority")])
        signed = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = signed.public_bytes(serialization.Encoding.PEM)
        self.path = folder / "ca.crt"
        self.path.write_bytes(self.certificate)

    def server(self, certificate: Path, key: Path) -> None:
        """Write the certificate and key of a server on 127.0.0.1, ::1 and localhost."""
        issued = self._issue("server", (), ExtendedKeyUsageOID.SERVER_AUTH)
        certificate.write_bytes(issued[0])
        _write_secret(key, issued[1])

    def client(self, user: str, groups: Sequence[str]) -> tuple[bytes, bytes]:
        """Certificate and key (PEM) with which an API server knows this user, as a member of these groups."""
        return self._issue(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH)

    def kubeconfig(self, path: Path, server: str, user: str, groups: Sequence[str], cluster: str) -> Path:
        """Write a kubeconfig that needs no other file."""
        certificate, key = self.client(user, groups)
        context = f"{user}@{cluster}"
        made = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": cluster,
                    "cluster": {"server": server, "certificate-authority-data": _base64(self.certificate)},
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)},
                }
            ],
            "contexts": [{"name": context, "context": {"cluster": cluster, "user": user}}],
            "current-context": context,
        }
        _write_secret(path, json.dumps(made, indent=1).encode())
        return path

    def _issue(self, user: str, groups: Sequence[str], usage: x509.ObjectIdentifier) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        builder = self._builder(subject, key.public_key()).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if usage == ExtendedKeyUsageOID.SERVER_AUTH:
            builder = builder.add_extension(x509.SubjectAlternativeName(_SERVER_NAMES), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), _pem(key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def signing_key(path: Path) -> Path:
    """Write a key with which an API server signs the tokens of service accounts."""
    _write_secret(path, _pem(ec.generate_private_key(ec.SECP256R1())))
    return path


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
