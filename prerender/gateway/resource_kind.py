"""The destination of a page's request. Pure.

Browsers send Sec-Fetch-Dest (W3C Fetch Metadata, section 2.1) only to secure sites. Otherwise it is
derived from Chromium's Accept header and the extension of the path.
"""

import re

from prerender.http.forwarding_headers import AnyHeaders
from prerender.words import Word

MEDIA = ("audio", "video", "track")
# Those of a page and of its frames.
FRAMES = ("document", "iframe", "frame", "object", "embed")
# Code that the page runs.
PROGRAMS = ("script", "worker", "sharedworker")
# What [network] block_types can name.
TYPES = {"image": ("image",), "font": ("font",), "media": MEDIA}

_BY_ACCEPT = {"text/html": "document", "image/": "image", "text/css": "style"}
_BY_ENDING = {
    "script": ("js", "mjs"),
    "style": ("css",),
    "font": ("woff2", "woff", "ttf", "otf"),
    "video": ("mp4", "webm", "m4v", "mov", "ogv"),
    "audio": ("mp3", "m4a", "ogg", "oga", "opus", "wav", "flac"),
}
_ENDINGS = {ending: kind for kind, endings in _BY_ENDING.items() for ending in endings}

# What Chromium shows; anything else it saves (blink/common/mime_util). It guesses at the type of what
# has none or an unknown one.
_SHOWN = re.compile(
    r"""
    text/(?!(?:
        (?:x-)?(?:calendar|csv|qif|vcalendar|vcard) | x-vcf | directory | ldif | rtf | ofx | tsv
        | (?:comma|tab)-separated-values | vnd\.sun\.j2me\.app-descriptor | x-ms-(?:iqy|odc)
    )$).*
    | image/(?:
        p?jpeg | jpg | (?:x-|a)?png | gif | webp | avif | jxl | bmp | svg\+xml | x-xbitmap | x-icon
        | vnd\.microsoft\.icon
    )
    | (?:audio|video)/(?:
        (?:x-)?(?:mp3|wav|mpegurl) | x-m4[av] | aac | flac | mp4 | ogg | webm | x-matroska
    )
    | audio/mpeg | video/3gpp
    | application/(?:
        pdf | xml | (?:atom|rss|xhtml)\+xml | (?:[\w.-]+\+)?json | (?:x-)?(?:java|ecma)script | ogg
        | x-mpegurl | vnd\.apple\.mpegurl | unknown
    )
    | multipart/x-mixed-replace | unknown/unknown | \*/\* | [^/]*
    """,
    re.IGNORECASE | re.VERBOSE,
)


class ResponseFault(Word):
    """Why a page cannot use a response that looks successful.

    HTML_MODULE: an application falls back to its index for files of the last release. Browsers do not
    run it (WHATWG HTML, "fetch a single module script").
    """

    HTML_MODULE = "html_module", "an HTML page instead of a script"
    UNREADABLE = "unreadable", "the response does not allow reading it from another origin (CORS)"
    TIMEOUT = "timeout", "no response in time"
    DISCONNECTED = "disconnected", "the connection failed"


def replaces_page(status: int, headers: AnyHeaders) -> bool:
    """Whether a browser that navigates leaves its page for this response (WHATWG HTML, section 7.4)."""
    is_saved = headers.get("Content-Disposition", "").lower().startswith("attachment")
    media_type = headers.get("Content-Type", "").partition(";")[0].strip()
    return status not in (204, 205) and not is_saved and bool(_SHOWN.fullmatch(media_type))


def destination(method: str, headers: AnyHeaders, target: str) -> str:
    """The destination of a request in the terms of Sec-Fetch-Dest; '' if unknown."""
    fetch_dest = headers.get("Sec-Fetch-Dest")
    if fetch_dest is not None:
        return fetch_dest
    if method != "GET":
        return ""
    accept = headers.get("Accept", "")
    for start, kind in _BY_ACCEPT.items():
        if accept.startswith(start):
            return kind
    path = target.partition("?")[0]
    return _ENDINGS.get(path.rpartition("/")[2].rpartition(".")[2].lower(), "")
