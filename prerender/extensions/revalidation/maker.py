"""What made a snapshot: this release, its settings and the browser. Pure."""

from hashlib import blake2b

from prerender import __version__
from prerender.config import Settings
from prerender.gateway.navigation import Navigation

# The sections of the settings that have an effect on snapshots.
_SECTIONS = ("origin", "site", "browser", "network", "render", "snapshot")


class Maker:
    """``name``: the same for the same release, settings and browser."""

    def __init__(self, settings: Settings, navigation: Navigation) -> None:
        sections = [getattr(settings, name).model_dump(mode="python") for name in _SECTIONS]
        self._made_from = f"{__version__} {sections}"
        self._navigation = navigation

    @property
    def name(self) -> str:
        """16 hexadecimal digits."""
        browser = self._navigation.user_agent
        return blake2b(f"{self._made_from} {browser}".encode(), digest_size=8).hexdigest()
