"""The presets of [triggers]: which classes of crawlers get snapshots."""

from typing import Annotated, Literal

from pydantic import BeforeValidator

from prerender.config.types import CLASSES, CrawlerClass

# Each with the classes that it renders; all others are forwarded. Each one contains the one before.
Preset = Literal["none", "search", "crawlers", "ai", "all"]
_SEARCH: frozenset[CrawlerClass] = frozenset({"search", "social"})
_CRAWLERS: frozenset[CrawlerClass] = _SEARCH | {"ai_search", "ai_user"}
PRESETS: dict[Preset, frozenset[CrawlerClass]] = {
    "none": frozenset(),
    "search": _SEARCH,
    "crawlers": _CRAWLERS,
    "ai": _CRAWLERS | {"ai_training"},
    # A snapshot would hide an outage from those who watch the site, and most signed agents drive a
    # browser, which needs the page itself.
    "all": frozenset(CLASSES) - {"monitoring", "signed"},
}
# Whom each preset serves.
PRESET_WORDS: dict[Preset, str] = {
    "none": "only clients that request ugly URLs",
    "search": "search engines and link previews (Googlebot, bingbot, Slackbot)",
    "crawlers": "search engines, link previews, AI search, AI assistants (OAI-SearchBot, Claude-User)",
    "ai": "search engines, link previews and all AI crawlers, also for training (GPTBot, ClaudeBot)",
    "all": "all crawlers but monitoring: also SEO tools, archives, feed readers (AhrefsBot, Feedly)",
}


def _preset(value: object) -> str:
    if value not in PRESETS:
        raise ValueError('give "none", "search", "crawlers", "ai" or "all"')
    return str(value)


TriggerPreset = Annotated[Preset, BeforeValidator(_preset)]
