"""Classes of crawlers, and the presets of [triggers]: which classes get snapshots.

A class is a setting in ``TriggerSettings`` with a ``CrawlerKind``.
"""

from typing import TYPE_CHECKING, Literal, get_args

from prerender.config.presets import Preset
from prerender.config.settings import TriggerSettings

_KINDS = TriggerSettings.classes()
# In the order of their settings.
CLASSES = tuple(_KINDS)
LABELS = {name: kind.label for name, kind in _KINDS.items()}
# Signed agents are known by their keys.
NAMED_CLASSES = tuple(one for one in CLASSES if one != "signed")
if TYPE_CHECKING:
    CrawlerClass = str
else:
    CrawlerClass = Literal[CLASSES]


def _rendered_by(preset: Preset) -> frozenset[CrawlerClass]:
    presets = get_args(Preset)
    smaller = presets[: presets.index(preset) + 1]
    return frozenset(name for name, kind in _KINDS.items() if kind.preset in smaller)


# Each with the classes that it renders; all others are forwarded.
PRESETS: dict[Preset, frozenset[CrawlerClass]] = {
    preset: _rendered_by(preset) for preset in get_args(Preset)
}
