"""Stubs: harmless responses to blocked requests.

Pages react to errors with placeholders, retries or waiting. An empty script loads without effect.
"""

import base64
import struct

from aiohttp.web import BaseRequest

from prerender.gateway.plain_response import Plain

# One transparent pixel: the smallest GIF.
_PIXEL = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
_RATE = 8000
# A second of silence, which audio and video players accept (WAVE, 8 bits, mono).
_SILENCE = (
    struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", 36 + _RATE, b"WAVE", b"fmt ", 16, 1, 1, _RATE, _RATE, 1, 8, b"data", _RATE,
    )
    + b"\x80" * _RATE
)  # fmt: skip
_SCRIPT = ("text/javascript", b"")
_BY_DESTINATION = {
    "script": _SCRIPT,
    "worker": _SCRIPT,
    "sharedworker": _SCRIPT,
    "serviceworker": _SCRIPT,
    "style": ("text/css", b""),
    "image": ("image/gif", _PIXEL),
    "audio": ("audio/wav", _SILENCE),
    "video": ("audio/wav", _SILENCE),
    "track": ("text/vtt", b"WEBVTT\n"),
    "iframe": ("text/html", b""),
    "frame": ("text/html", b""),
    "document": ("text/html", b""),
}
# CORS requests are granted: there is nothing to protect.
_GRANTED = {
    "Origin": "Access-Control-Allow-Origin",
    "Access-Control-Request-Method": "Access-Control-Allow-Methods",
    "Access-Control-Request-Headers": "Access-Control-Allow-Headers",
}


def stub(request: BaseRequest, destination: str) -> Plain:
    """The response to a blocked request, readable for every origin."""
    headers = {"Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "cross-origin"}
    for requested, granted in _GRANTED.items():
        if value := request.headers.get(requested):
            headers[granted] = value
    if "Origin" in request.headers:
        headers["Access-Control-Allow-Credentials"] = "true"
    if destination not in _BY_DESTINATION:
        return Plain(status=204, headers=headers)
    media_type, body = _BY_DESTINATION[destination]
    return Plain(headers=headers | {"Content-Type": media_type}, body=body)
