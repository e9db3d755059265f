"""The shop in examples/hashbang."""

import importlib.util
import json
from pathlib import Path

from aiohttp import web

from tests.support.commands import ROOT

FOLDER = ROOT / "examples" / "hashbang"
ITEMS = json.loads((FOLDER / "items.json").read_text("utf-8"))


def shop(folder: Path = FOLDER) -> web.Application:
    """The application of the example, or of a copy of it: examples are programs, not a package."""
    spec = importlib.util.spec_from_file_location("example_origin", folder / "origin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    application = module.make_app()
    assert isinstance(application, web.Application)
    return application
