"""The presets of [triggers]. The ``CrawlerKind`` of a setting in settings.py says which one renders a
class of crawlers.
"""

from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator

# Each one contains the one before.
Preset = Literal["none", "search", "crawlers", "ai", "all"]
# Whom each preset serves.
PRESET_WORDS: dict[Preset, str] = {
    "none": "only clients that request ugly URLs",
    "search": "search engines and link previews (Googlebot, bingbot, Slackbot)",
    "crawlers": "search engines, link previews, AI search, AI assistants (OAI-SearchBot, Claude-User)",
    "ai": "search engines, link previews and all AI crawlers, also for training (GPTBot, ClaudeBot)",
    "all": "all crawlers but monitoring: also SEO tools, archives, feed readers (AhrefsBot, Feedly)",
}


def _preset(value: object) -> str:
    if not isinstance(value, str) or value not in PRESET_WORDS:
        raise ValueError('give "none", "search", "crawlers", "ai" or "all"')
    return str(value)


TriggerPreset = Annotated[Preset, BeforeValidator(_preset)]


class CrawlerKind(NamedTuple):
    """Makes a setting of [triggers] that of a class of crawlers.

    ``label``: what the dashboard calls one of them. ``preset``: the smallest that renders them.
    """

    label: str
    preset: Preset | None
