"""Traces of settling: what was observed of a real page after each step, and the step that followed.

The pages are of the corpus (tests/sites/corpus). ``python -m tests.support.settling_traces [PAGE ...]``
records them again, or others, with a real browser. If a decision has changed, look at the steps that
differ first.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, cast
from unittest import mock

from prerender.browser.emulation import DESKTOP
from prerender.browser.probe import ProbeState
from prerender.browser.settling import decision, settler
from prerender.browser.settling.decision import SettlingDecision, SettlingProgress, Step
from prerender.browser.settling.observation import Observation, PageNetwork
from tests.conftest import Overrides, Proxy, proxied
from tests.sites.corpus import origin

BUDGET_SECONDS = 10.0
SETTINGS: Overrides = {
    "site": {"url": "https://www.example.com"},
    "browser": {"pages": 1},
    "cache": {"ttl": 0},
    "render": {"budget": BUDGET_SECONDS, "patience": 1},
}
_FOLDER = Path(__file__).parent.parent / "browser" / "traces"
_PAGE = [field.name for field in fields(ProbeState)]
_NETWORK = [field.name for field in fields(PageNetwork)]

# The fields of an observation that have changed, or {"answer": the answer to a Show}; and the step.
Row = tuple[dict[str, Any], list[Any]]


def pages() -> list[str]:
    """The names of the pages that have a trace."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


def read(page: str) -> list[Row]:
    """The trace of a page."""
    return [(seen, step) for seen, step in json.loads(_path(page).read_text("utf-8"))]


def _path(page: str) -> Path:
    return _FOLDER / f"{page}.json"


def written(step: Step) -> list[Any]:
    """A step as JSON: its name and its values."""
    return [type(step).__name__, *cast("list[Any]", _rounded([*asdict(step).values()]))]


def replayed(rows: list[Row]) -> list[list[Any]]:
    """The steps that are decided on the observations of a trace."""
    progress, _ = decision.begin(BUDGET_SECONDS, DESKTOP.height)
    known: dict[str, Any] = {}
    steps = []
    for seen, _ in rows:
        if "answer" in seen:
            progress, step = decision.after_show(progress, seen["answer"])
        else:
            known |= seen
            progress, step = decision.decide(progress, observation(known))
        steps.append(written(step))
    return steps


def observation(known: dict[str, Any]) -> Observation:
    """An observation of its fields, those of the page and of its requests among them.

    Counts that did not exist when the trace was recorded are 0.
    """
    page = ProbeState(**{name: known.get(name, 0) for name in _PAGE}) if known["probe"] else None
    network = PageNetwork(**{name: known.get(name, 0) for name in _NETWORK})
    others = known.keys() - {*_PAGE, *_NETWORK, "probe"}
    return Observation(page, network, **{name: known[name] for name in others})


def _fields_of(seen: Observation) -> dict[str, Any]:
    known = {"probe": seen.page is not None, **asdict(seen.network), **asdict(seen)}
    del known["network"], known["page"]
    return known | (asdict(seen.page) if seen.page else {})


class _Recorder:
    """Records the decisions about a page. It decides on the rounded values, as a replay does."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._known: dict[str, Any] = {}
        self._decide, self._after_show = decision.decide, decision.after_show

    def decide(self, progress: SettlingProgress, seen: Observation) -> SettlingDecision:
        known = cast("dict[str, Any]", _rounded(_fields_of(seen)))
        new = {name: it for name, it in known.items() if self._known.get(name, ...) != it}
        self._known |= new
        return self._record(new, self._decide(progress, observation(self._known)))

    def after_show(self, progress: SettlingProgress, answer: object) -> SettlingDecision:
        return self._record({"answer": answer}, self._after_show(progress, answer))

    def _record(self, seen: dict[str, Any], decided: SettlingDecision) -> SettlingDecision:
        self.rows.append((seen, written(decided[1])))
        return decided


def _rounded(value: object) -> object:
    match value:
        case float():
            return round(value, 3)
        case list():
            return [_rounded(one) for one in value]
        case dict():
            return {name: _rounded(one) for name, one in value.items()}
    return value


@contextmanager
def _recording() -> Iterator[list[Row]]:
    recorder = _Recorder()
    with mock.patch.multiple(settler, decide=recorder.decide, after_show=recorder.after_show):
        yield recorder.rows


async def _record(proxy: Proxy, page: str) -> None:
    await proxy.all_pages_idle()  # a new page settles a test page first
    with _recording() as rows:
        await proxy.crawl(f"/{page}.html")
    if not rows or replayed(rows) != [step for _, step in rows]:
        raise RuntimeError(f"{page}: the trace cannot be replayed")
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    _path(page).write_text(f"[\n{lines}\n]\n", "utf-8")
    print(page, rows[-1][1])


async def _main(wanted: list[str]) -> None:
    async with proxied(origin.application(), SETTINGS) as proxy:
        for page in wanted:
            await _record(proxy, page)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:] or pages()))
