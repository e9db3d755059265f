"""What can be wrong with a page, and how bad it is."""

from dataclasses import dataclass, field
from typing import Literal, get_args

Level = Literal["error", "warning", "note"]
_LEVELS: tuple[Level, ...] = get_args(Level)
Kind = Literal["snapshot", "shell", "page", "redirect", "file", "nothing"]

# Each with its level. Errors are what crawlers act on to the site's harm, or take for deceit.
LEVELS: dict[str, Level] = {
    "unreachable": "error",  # no answer
    "status": "error",  # an answer that is neither a page nor a redirect nor "not found"
    "not-found": "error",  # 404 or 410: crawlers forget the page
    "shell": "error",  # the page before its JavaScript has run
    "empty": "error",  # no text
    "not-opted-in": "error",  # made by JavaScript, without #! and without the meta tag: no snapshot
    "cloaked": "error",  # people do not get this text
    "incomplete": "error",  # people get this text, crawlers do not
    "canonical-ugly": "error",
    "canonical-broken": "error",  # no URL, several, or one that is not there
    "canonical-state": "error",  # names the page without its #! state
    "link-ugly": "error",
    "meta-fragment": "error",  # left in a snapshot: it sends crawlers to the ugly URL again
    "link-hash": "error",  # a route behind # without !: no crawler asks for it
    "sitemap-ugly": "error",
    "opt-in-invalid": "error",  # a meta tag that was meant as one
    "redirect-ugly": "error",
    "redirect-state": "error",  # crawlers lose the #! state that people keep
    "redirect": "warning",
    "robots": "warning",  # robots.txt keeps crawlers from it
    "noindex": "warning",
    "title-missing": "warning",
    "title-duplicate": "warning",
    "title-several": "warning",
    "description-missing": "warning",
    "description-duplicate": "warning",
    "soft-404": "warning",  # what is not there is answered with 200
    "opt-in-needless": "warning",  # the meta tag on a page that is whole without JavaScript
    "accessibility": "warning",  # a screen reader says less of the snapshot
    "verdict": "warning",  # the proxy itself says that the snapshot is not complete
    "slow": "warning",
    "no-look": "warning",  # nobody could see what people see
    "canonical-elsewhere": "note",
    "hidden": "note",  # in the page, but not shown when it has loaded: menus, tabs
    "differs": "note",  # few words: a time, a counter
}


@dataclass(frozen=True, slots=True)
class Finding:
    """``code`` is one of LEVELS; ``text`` tells what, for the owner."""

    code: str
    text: str

    @property
    def level(self) -> Level:
        """How bad it is."""
        return LEVELS[self.code]


@dataclass(slots=True)
class Report:
    """What was found of a page. ``seconds``: how long the crawler waited; ``similarity``: 0 to 1.

    ``asked`` is the URL that the crawler asked for: the ugly one, or the page's own; ``location`` is
    where a redirect leads to.
    """

    url: str
    asked: str = ""
    status: int = 0
    kind: Kind = "nothing"
    seconds: float = 0.0
    title: str = ""
    description: str = ""
    canonical: str = ""
    location: str = ""
    similarity: float | None = None
    findings: list[Finding] = field(default_factory=list)

    def add(self, code: str, text: str) -> None:
        """Note something."""
        self.findings.append(Finding(code, text))

    @property
    def worst(self) -> Level | Literal["ok"]:
        """The worst level of what was found."""
        worst = min((_LEVELS.index(finding.level) for finding in self.findings), default=None)
        return "ok" if worst is None else _LEVELS[worst]
