"""What a page gets for a request that was left out: something harmless of the kind that it asked for.

A refusal would be an error to the page, and pages act on errors: they put placeholders in, try again
or wait. An empty script loads, and the queue that it would have worked through stays an array.
"""

import base64
import struct

from aiohttp.web import BaseRequest

from prerender.responses import WholeResponse

# One transparent pixel: the smallest GIF.
_PIXEL = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
_RATE = 8000
# A second of silence: players of sound and of pictures take it (WAVE, 8 bits, mono).
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


def stand_in(request: BaseRequest, destination: str) -> WholeResponse:
    """The answer to a request that was left out, readable for every origin."""
    fields = "Cache-Control: no-store\r\n"
    if origin := _field(request, "Origin"):
        fields += (
            f"Access-Control-Allow-Origin: {origin}\r\nAccess-Control-Allow-Credentials: true\r\n"
        )
    fields += "Cross-Origin-Resource-Policy: cross-origin\r\n"
    if method := _field(request, "Access-Control-Request-Method"):
        names = _field(request, "Access-Control-Request-Headers")
        fields += (
            f"Access-Control-Allow-Methods: {method}\r\nAccess-Control-Allow-Headers: {names}\r\n"
        )
    if destination not in _BY_DESTINATION:
        return WholeResponse(204, fields.encode(), None)
    media_type, body = _BY_DESTINATION[destination]
    fields += f"Content-Type: {media_type}\r\n"
    return WholeResponse(200, fields.encode(), body)


def _field(request: BaseRequest, name: str) -> str:
    value = request.headers.get(name, "")
    return value if value.isascii() and value.isprintable() else ""
