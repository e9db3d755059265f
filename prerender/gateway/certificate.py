"""The key and certificate of the gateway's TLS listener, generated at startup.

Chromium accepts exactly this key (``--ignore-certificate-errors-spki-list``) and ignores the
certificate's name and dates.
"""

import base64
import os
import ssl
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID


class Certificate:
    """A self-signed certificate with a fresh key.

    ``spki_sha256`` is the base64 of the SHA-256 of its public key (SubjectPublicKeyInfo).
    """

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.spki_sha256 = base64.b64encode(sha256(public).digest()).decode()

    def server_context(self) -> ssl.SSLContext:
        """A context for the TLS listener."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # The ssl module loads keys only from files; this one is in memory.
        with open(os.memfd_create("gateway.pem"), "wb") as file:
            file.write(self._pem())
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context

    def _pem(self) -> bytes:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "prerender gateway")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=3650))
            .sign(self._key, SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM) + self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
