"""A class of crawlers is added in one place, as CONTRIBUTING.md says."""

import asyncio
import os
import re
import sys
import textwrap
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.support.commands import ROOT

USE = """
from prerender.config import load
from prerender.config.crawler_classes import PRESETS
from prerender.crawlers.from_settings import triggers_of
from prerender.crawlers.known import parse
from prerender.extensions.dashboard.dashboard_files import DashboardFiles

more = [{"class": "shopping", "name": "PriceBot"}]
environment = {"PRERENDER_ORIGIN": "http://127.0.0.1:9"}
triggers = triggers_of(load(None, environment, {"triggers": {"preset": "all", "more": more}}))
assert triggers.action(triggers.class_of("PriceBot/1.0")) == "render"
refusing = load(None, environment, {"triggers": {"shopping": "refuse"}})
assert triggers_of(refusing).action("shopping") == "refuse"
assert "shopping" not in PRESETS["ai"]
assert parse("[shopping]\\nPriceBot = {}").crawlers[0].crawler == "shopping"
assert b'"shopping": "Price comparison"' in DashboardFiles()._files["index.html"]
"""


@pytest.mark.ci_only
async def test_a_class_is_added_in_one_place(tmp_path: Path) -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    example = re.search(r"A class of crawlers.*?```python\n(.*?)```", guide, re.DOTALL)
    assert example
    package = tmp_path / "prerender"
    (package / "config").mkdir(parents=True)
    for part in (*(ROOT / "prerender").iterdir(), *(ROOT / "prerender/config").iterdir()):
        if not (link := package / part.relative_to(ROOT / "prerender")).exists():
            link.symlink_to(part)
    settings = package / "config/settings.py"
    text = settings.read_text("utf-8")
    settings.unlink()
    before = "    signed: Annotated"
    assert text.count(before) == 1
    added = textwrap.indent(example[1], "    ")
    settings.write_text(text.replace(before, f"{added}{before}"), "utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", USE),
        env=os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        stderr=PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 0, err.decode()
