"""Why a request was handled as it was, and why a render failed, as people read it. Pure."""

from prerender.config.crawler_classes import PRESETS, CrawlerClass
from prerender.errors import ErrorCode
from prerender.proxy.decision import Reason
from prerender.words import Word

_OF_THE_ORIGIN = (ErrorCode.ORIGIN_ERROR, ErrorCode.ORIGIN_TIMEOUT)


def in_words(error: str | None, reason: str) -> str:
    """A sentence without its full stop, from an error's code, if there is one, and its reason."""
    if not error:
        return reason
    text = f"no response from your site: {reason}" if error in _OF_THE_ORIGIN else reason
    text = text or ErrorCode.INTERNAL_ERROR.text
    return f"{text[0].upper()}{text[1:]}"


def of_decision(reason: Word, crawler: CrawlerClass | None) -> str:
    """Why a request was handled as it was; of a forwarded crawler, with the setting to change."""
    # Signed agents are no such crawlers: most drive a browser, so that nothing is wrong.
    if reason is not Reason.CLASS_FORWARDED or crawler is None or crawler == "signed":
        return reason.text
    preset = next((preset for preset, classes in PRESETS.items() if crawler in classes), None)
    return (
        f"{reason.text} ({crawler}): to serve it snapshots, set "
        f"PRERENDER_TRIGGERS_{crawler.upper()}=render"
        + (f", or PRERENDER_TRIGGERS_PRESET={preset}" if preset else "")
    )
