"""The command line: ``prerender serve`` and ``prerender render URL``."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop
from yarl import URL

from prerender import __version__, app, logs
from prerender.ajax_crawling import PrettyURL, ugly_to_pretty
from prerender.config import Settings, load
from prerender.errors import ConfigError, NotRenderable, PrerenderError
from prerender.snapshots.snapshot import Target

_FAILED = 1
_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status: 0, 1 when it failed, 2 when it was asked wrongly."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "serve":
            return _serve(load(options.config))
        return _render(options.url, options.config)
    except ConfigError as error:
        print("\n".join(["prerender cannot start:", *error.problems]), file=sys.stderr)
        return _USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="prerender",
        description="Answers crawlers with HTML snapshots of JavaScript pages.",
    )
    parser.add_argument("--version", action="version", version=f"prerender {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run the proxy")
    render = commands.add_parser("render", help="print the snapshot of one page and exit")
    render.add_argument("url", help="the page's URL, pretty (#!) or ugly")
    for command in (serve, render):
        command.add_argument(
            "--config", type=Path, metavar="FILE", help="a TOML file with settings"
        )
    return parser


def _serve(settings: Settings) -> int:
    logs.configure(settings.log)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()

        def asked_to_stop() -> None:
            if stop.is_set():
                # Asked twice: the guardians end the browsers when this process is gone.
                os._exit(_FAILED)
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked_to_stop)
        await app.serve(settings, stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
    return 0


def _render(text: str, config: Path | None) -> int:
    try:
        url = URL(text, encoded=True)
        site = str(url.origin())
    except ValueError:
        raise ConfigError([f"URL: {text!r}: give an absolute http or https URL"]) from None
    # Without an origin of its own the page is rendered straight from its site.
    environ: Mapping[str, str] = os.environ
    overrides: dict[str, dict[str, object]] = {"site": {"url": site}}
    if config is None and not {"PRERENDER_ORIGIN", "PRERENDER_ORIGIN_URL"} & set(environ):
        overrides["origin"] = {"url": site}
    overrides["browser"] = {"pages": 1}
    settings = load(config, environ, overrides)
    logs.configure(settings.log.model_copy(update={"level": "warning"}))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            html = runner.run(_snapshot(settings, Target.of(settings.public_url, _pretty(text))))
    except NotRenderable as error:
        print(f"prerender: {text}: no HTML page: {error}", file=sys.stderr)
        return _FAILED
    except PrerenderError as error:
        print(f"prerender: {error}", file=sys.stderr)
        return _FAILED
    sys.stdout.buffer.write(html)
    return 0


async def _snapshot(settings: Settings, target: Target) -> bytes:
    async with app.rendering(settings) as (_, _, renderer):
        answer = await renderer.snapshot(target)
    status = answer.snapshot.status
    if status != 200:
        print(f"prerender: status {status} {dict(answer.snapshot.headers)}", file=sys.stderr)
    return answer.snapshot.body


def _pretty(text: str) -> PrettyURL:
    after_host = text.partition("://")[2]
    start = min((i for i in map(after_host.find, "/?#") if i >= 0), default=len(after_host))
    rest = after_host[start:]
    rest = rest if rest.startswith("/") else f"/{rest}"
    path, _, fragment = rest.partition("#")
    if ugly := ugly_to_pretty(path):
        return ugly
    return PrettyURL(path, fragment.removeprefix("!") if fragment.startswith("!") else "")
