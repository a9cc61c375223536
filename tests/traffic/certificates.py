# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Certificates for tests: an authority and servers' certificates, created each time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_PEM = serialization.Encoding.PEM


class Authority:
    """A certificate authority that keeps its files in a folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        builder = self._builder(self._name, self._key).add_extension(constraints, critical=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM).decode()
        self.file = folder / f"{name}.crt"
        self.file.write_text(self.pem)

    def issue(self, host: str) -> tuple[str, str]:
        """Files of the certificate and the key of a server with this DNS name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        certificate = self._builder(subject, key).add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        stem = self._folder / f"{self.file.stem}-{host}"
        certificate_file, key_file = stem.with_name(f"{stem.name}.crt"), stem.with_name(f"{stem.name}.key")
        certificate_file.write_bytes(certificate.public_bytes(_PEM))
        plain = serialization.NoEncryption()
        key_file.write_bytes(key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, plain))
        return str(certificate_file), str(key_file)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )
