"""Verifies HTTP Message Signatures (RFC 9421) with Ed25519. Pure.

The library makes the signature base and verifies it. Added here: limits for what strangers send, times
of a given clock, and reasons in words.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import cryptography.exceptions
import http_sf
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from http_message_signatures import (
    HTTPMessageSignaturesException,
    HTTPMessageVerifier,
    MappingKeyResolver,
)
from http_message_signatures.algorithms import ED25519

CLOCK_SKEW_SECONDS = 30
MOST_SIGNATURES = 8
# Each is looked up, and some are parsed.
MOST_COMPONENTS = 32


class NotVerified(Exception):
    """A signature is not verified. Its text is the reason."""


class Lines(Protocol):
    """The headers of a message, in order."""

    def items(self) -> Iterable[tuple[str, str]]:
        """All lines, also repeated ones: name and value."""


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request. ``url``: the absolute URL that the client requested."""

    method: str
    url: str
    headers: Lines


@dataclass(frozen=True, slots=True)
class SignedResponse:
    """A response, with the request that it answers."""

    status_code: int
    headers: Lines
    request: SignedRequest


@dataclass(frozen=True, slots=True)
class Signature:
    """A member of Signature-Input: the covered components, each a name with parameters, and the
    parameters of the signature (section 2.3). Times are Unix seconds."""

    label: str
    components: tuple[tuple[str, Mapping[str, object]], ...]
    tag: str
    keyid: str
    nonce: str
    created: int | None
    expires: int | None

    def covers(self, name: str, **parameters: object) -> bool:
        """Whether a component with exactly these parameters is covered."""
        return (name, parameters) in self.components

    def check_time(self, now: float) -> None:
        """Raises NotVerified if it is from the future or expired."""
        if self.created is not None and self.created > now + CLOCK_SKEW_SECONDS:
            raise NotVerified(f"it was created {self.created - now:.0f} s in the future")
        if self.expires is not None and self.expires < now - CLOCK_SKEW_SECONDS:
            raise NotVerified(f"it expired {now - self.expires:.0f} s ago")


def dictionary(name: str, value: str) -> dict[str, tuple[Any, dict[str, Any]]]:
    """The members of a header (RFC 9651, section 3.2), each with its parameters.

    Raises NotVerified if it is malformed, or if a key occurs twice.
    """
    repeated: list[str] = []
    try:
        members = http_sf.parse(
            value.encode("latin-1", "replace"),
            tltype="dictionary",
            on_duplicate_key=lambda key, _: repeated.append(key),
        )
    except ValueError as error:
        raise NotVerified(f"{name} is malformed: {error}") from error
    if repeated:
        raise NotVerified(f"{name} has {repeated[0]} twice")
    return cast("dict[str, tuple[Any, dict[str, Any]]]", members)


def signatures(signature_input: str, tag: str) -> list[Signature]:
    """The signatures with this tag, in their order. Raises NotVerified if one is malformed."""
    members = dictionary("Signature-Input", signature_input)
    if len(members) > MOST_SIGNATURES:
        raise NotVerified(f"there are more than {MOST_SIGNATURES} signatures")
    parsed = [_signature(label, *member) for label, member in members.items()]
    return [signature for signature in parsed if signature.tag == tag]


def _signature(label: str, covered: object, parameters: Mapping[str, object]) -> Signature:
    if not isinstance(covered, list) or not all(isinstance(name, str) for name, _ in covered):
        raise NotVerified(f"Signature-Input: {label} is not a list of components")
    if len(covered) > MOST_COMPONENTS:
        raise NotVerified(f"Signature-Input: {label} has more than {MOST_COMPONENTS} components")
    texts = {name: parameters.get(name, "") for name in ("tag", "keyid", "nonce")}
    times = {name: parameters.get(name) for name in ("created", "expires")}
    for name, value in (texts | times).items():
        wanted = str if name in texts else int
        if value is not None and type(value) is not wanted:
            kind = "a string" if name in texts else "an integer"
            raise NotVerified(f"Signature-Input: {label}: {name} is not {kind}")
    return Signature(label, tuple(covered), **texts, **times)  # type: ignore[arg-type]


class _Verifier(HTTPMessageVerifier):
    def validate_created_and_expires(self, sig_input: object, max_age: object = None) -> None:
        """Nothing: Signature.check_time did it, with the clock of the caller."""


def verify(
    message: SignedRequest | SignedResponse,
    signature: Signature,
    key: Ed25519PublicKey,
    body: bytes | None = None,
) -> None:
    """Verify a signature of a message (section 3.2), but not its times.

    With ``body``, its digest must be covered, and match (RFC 9530). A signature without a tag must be
    the only one. Raises NotVerified.
    """
    keys = MappingKeyResolver(public_keys={signature.keyid: key}, private_keys={})
    verifier = _Verifier(signature_algorithm=ED25519, key_resolver=keys)
    try:
        verifier.verify(
            message,
            max_age=None,
            expect_tag=signature.tag or None,
            expect_label=signature.label if signature.tag else None,
            body=body,
        )
    except HTTPMessageSignaturesException as error:
        if isinstance(error.__cause__, cryptography.exceptions.InvalidSignature):
            request = message if isinstance(message, SignedRequest) else message.request
            what = f"{request.method} request for {request.url.split('/')[2]}"
            raise NotVerified(f"the signature does not match the key and this {what}") from error
        raise NotVerified(str(error) or "its components cannot be signed") from error
