"""The host names that get snapshots. Pure."""

from functools import lru_cache

from prerender.urls.hosts import Hosts, host_of, is_address, normalized

_REMEMBERED = 256


class SiteHosts:
    """The names of the site: ``site`` and those in ``listed``. All names, if ``site`` is only guessed
    from the origin; ``guess`` is its authority then, otherwise ''.

    IP addresses and names without a dot are included: such requests come from inside, for example from
    a proxy in front that does not pass ``Host``.
    """

    def __init__(self, site: str, listed: Hosts, guess: str = "") -> None:
        self._site = normalized(site)
        self.guess = guess
        self.are_guessed = bool(guess)
        self._listed = listed
        self._known = lru_cache(maxsize=_REMEMBERED)(self._is_own)

    def __contains__(self, host: str) -> bool:
        return self.are_guessed or self._known(host)

    def _is_own(self, host: str) -> bool:
        name = host_of(host)
        return (
            "." not in name or name == self._site or is_address(name) or self._listed.named(name, 0)
        )
