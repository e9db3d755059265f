"""Asset fingerprint: a digest of the scripts and styles of a document, which changes with a deploy."""

import re
from hashlib import blake2b

_SCRIPTS_AND_STYLES = re.compile(
    rb"<script\b[^<>]*?\ssrc\s*=\s*[\"']?([^\"'\s>]+)"
    rb"|<link\b(?=[^<>]*\brel\s*=\s*[\"']?(?:stylesheet|modulepreload))"
    rb"[^<>]*?\shref\s*=\s*[\"']?([^\"'\s>]+)",
    re.IGNORECASE,
)


def asset_fingerprint_of(document: bytes) -> str:
    """A digest of the URLs of a document's scripts and styles in their order; '' if it has none."""
    urls = [script or style for script, style in _SCRIPTS_AND_STYLES.findall(document)]
    return blake2b(b"\0".join(urls), digest_size=8).hexdigest() if urls else ""
