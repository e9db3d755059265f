"""``without_extension.py FOLDER ORIGIN NAME ...``: deletes extensions, one at a time.

In a fork for each, with a copy of the package without it, ``prerender`` checks its settings and serves
a forwarded request. Prints what fails.
"""

import asyncio
import os
import sys
import traceback
from pathlib import Path

from aiohttp import ClientSession

import prerender
from prerender import app, cli, extensions, plugins
from prerender.config import load
from tests.support.raw import SECONDS

ROOT = Path(prerender.__path__[0])


def _copy(name: str, to: Path) -> None:
    """Links to all parts but one, such as ``extensions/cdn``."""
    (to / "extensions").mkdir(parents=True)
    for part in (*ROOT.iterdir(), *(ROOT / "extensions").iterdir()):
        path = part.relative_to(ROOT)
        if str(path) not in ("extensions", name):
            (to / path).symlink_to(part)


async def _forward() -> None:
    async with (
        asyncio.timeout(SECONDS),
        app.serving(load(None)) as running,
        ClientSession() as client,
    ):
        async with client.get(f"http://127.0.0.1:{running.public_port}/") as response:
            assert await response.text() == "forwarded"
        async with client.get(f"http://127.0.0.1:{running.admin_port}/healthz") as response:
            assert response.status == 200


def _use(name: str, copy: Path) -> None:
    _copy(name, copy)
    prerender.__path__[:] = [str(copy)]
    extensions.__path__[:] = [str(copy / "extensions")]
    plugins._ROOT = copy
    plugins.having.cache_clear()
    assert cli.main(["config", "--check"]) == 0
    if name == "tools":
        assert cli.main(["llms", "a.txt", "--to", "public"]) == 1
    asyncio.run(_forward())


def main(folder: str, origin: str, *names: str) -> int:
    """Delete extensions. Returns how many of them cannot be deleted."""
    os.environ |= {
        "PRERENDER_ORIGIN_URL": origin,
        "PRERENDER_SERVER_PORT": "0",
        "PRERENDER_ADMIN_PORT": "0",
        "PRERENDER_BROWSER_PATH": "/nonexistent/chromium",
        "PRERENDER_LOG_LEVEL": "error",
    }
    # Imports the libraries of the extensions, which need not be imported in each fork.
    parts = [module.__name__.removesuffix(".extension") for module in plugins.modules("extension")]
    for imported in [*sys.modules]:
        if any(imported == part or imported.startswith(f"{part}.") for part in parts):
            del sys.modules[imported]
    failed = 0
    for name in names:
        child = os.fork()
        if not child:
            try:
                _use(name, Path(folder) / name)
            except BaseException:
                print(f"without {name}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        failed += os.waitpid(child, 0)[1] != 0
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
