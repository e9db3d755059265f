"""Findings about pages, and their levels."""

from dataclasses import dataclass, field
from typing import Literal, get_args

Level = Literal["error", "warning", "note"]
_LEVELS: tuple[Level, ...] = get_args(Level)
ResponseKind = Literal["snapshot", "shell", "page", "redirect", "file", "nothing"]

# The level of each finding. Errors make crawlers drop or distrust a page.
LEVELS: dict[str, Level] = {
    "unreachable": "error",  # no response
    "status": "error",  # neither a page nor a redirect nor "not found"
    "not-found": "error",  # 404 or 410: crawlers forget the page
    "shell": "error",  # the page before its JavaScript has run
    "empty": "error",  # no text
    "no-snapshot": "error",  # made by JavaScript, and crawlers get it without its content
    "cloaked": "error",  # only crawlers get this text
    "incomplete": "error",  # only visitors get this text
    "canonical-ugly": "error",
    "canonical-broken": "error",  # invalid, several, or missing
    "canonical-state": "error",  # without the #! state of the page
    "link-ugly": "error",
    "meta-fragment": "error",  # left in a snapshot: it sends crawlers to the ugly URL again
    "link-hash": "error",  # a # route without !: crawlers do not request it
    "sitemap-ugly": "error",
    "sitemap-unreadable": "error",
    "opt-in-invalid": "error",  # a misplaced or malformed meta tag
    "redirect-ugly": "error",
    "redirect-state": "error",  # crawlers lose the #! state that visitors keep
    "redirect": "warning",
    "robots": "warning",  # disallowed by robots.txt
    "noindex": "warning",
    "title-missing": "warning",
    "title-duplicate": "warning",
    "title-several": "warning",
    "description-missing": "warning",
    "description-duplicate": "warning",
    "soft-404": "warning",  # missing pages have status 200
    "opt-in-needless": "warning",  # the meta tag on a page that is complete without JavaScript
    "request-failed": "error",  # of the site's own or for data, in the browser
    "request-refused": "error",  # by the proxy, of a page that is incomplete
    "script-error": "warning",  # an exception, or what the browser refused
    "accessibility": "warning",  # a screen reader announces less in the snapshot
    "verdict": "warning",  # the proxy reports that the snapshot is not complete
    "slow": "warning",
    "no-look": "warning",  # the browser could not open the page
    # With --readiness.
    "structured-data": "warning",  # JSON-LD is invalid, or lacks what Google requires of its type
    "ai-robots": "warning",  # robots.txt disallows AI crawlers
    "headings": "note",
    "language": "note",
    "tokens": "note",  # longer than what agents read
    "markdown-missing": "note",
    "content-signal": "note",
    "llms-txt": "note",
    "canonical-elsewhere": "note",
    "thin-text": "note",  # a loading state, or a wall: cookies, a login, an age
    "hidden": "note",  # in the page, but not shown when it has loaded: menus, tabs
    "changed": "note",  # by [snapshot] remove and add of the proxy
    "render-needless": "note",  # the snapshots of a section show what the pages show without scripts
    "differs": "note",  # few words: a time, a counter
}


@dataclass(frozen=True, slots=True)
class Finding:
    """``code`` is one of LEVELS; ``text`` explains it."""

    code: str
    text: str

    @property
    def level(self) -> Level:
        """The level of the finding."""
        return LEVELS[self.code]


@dataclass(slots=True)
class Report:
    """The result for a page. ``seconds``: response time for the crawler; ``similarity``: 0 to 1.

    ``asked``: the URL that the crawler requested, ugly or the page's own; ``location``: the target of
    a redirect; ``needless``: whether its snapshot shows what the page shows without scripts, None if
    crawlers get no snapshot.
    """

    url: str
    asked: str = ""
    status: int = 0
    kind: ResponseKind = "nothing"
    seconds: float = 0.0
    title: str = ""
    description: str = ""
    canonical: str = ""
    location: str = ""
    similarity: float | None = None
    needless: bool | None = None
    findings: list[Finding] = field(default_factory=list)

    def add(self, code: str, text: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(code, text))

    @property
    def worst(self) -> Level | Literal["ok"]:
        """The worst level of the findings."""
        worst = min((_LEVELS.index(finding.level) for finding in self.findings), default=None)
        return "ok" if worst is None else _LEVELS[worst]
