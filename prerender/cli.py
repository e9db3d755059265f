"""The command line: ``prerender serve``, ``prerender render URL`` and ``prerender purge``."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop
from yarl import URL

from prerender import __version__, app, logs
from prerender.addresses import pretty_of
from prerender.admin import client
from prerender.config import Settings, load
from prerender.errors import AdminError, ConfigError, NotRenderable, OriginError, PrerenderError
from prerender.snapshots.snapshot import Snapshot, Target

_FAILED = 1
_USAGE = 2
_PURGES = {
    "url": "the snapshot of a page, by its pretty or ugly URL",
    "prefix": "of all pages whose URLs begin like this",
    "pattern": "of all pages with such a URL; * stands for anything",
    "tag": "of all pages with this tag",
}
_INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status: 0, 1 when it failed, 2 when it was asked wrongly."""
    _open_standard_streams()
    options = _parser().parse_args(arguments)
    try:
        if options.command == "serve":
            return _serve(load(options.config))
        if options.command == "purge":
            return _purge(options)
        return _render(options.url, options.config)
    except ConfigError as error:
        _say("\n".join(["prerender cannot start:", *error.problems]))
        return _USAGE
    except KeyboardInterrupt:
        return _INTERRUPTED


def _open_standard_streams() -> None:
    """Lead what was closed (``2>&-``) nowhere, so that no socket gets its file descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _say(text: str) -> None:
    logs.flush()
    print(text, file=sys.stderr)


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
    purge = commands.add_parser("purge", help="have a running proxy make snapshots anew")
    for word, help_text in _PURGES.items():
        purge.add_argument(f"--{word}", action="append", default=[], help=help_text)
    purge.add_argument("--all", action="store_true", help="all snapshots")
    purge.add_argument("--soft", action="store_true", help="show them until there are new ones")
    for command in (serve, render, purge):
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


def _purge(options: argparse.Namespace) -> int:
    what: dict[str, object] = {word: getattr(options, word) for word in _PURGES}
    try:
        count = client.purge(
            load(options.config), what | {"all": options.all, "soft": options.soft}
        )
    except AdminError as error:
        _say(f"prerender: {error}")
        return _FAILED
    print(f"purged: {count}")
    return 0


def _render(text: str, config: Path | None) -> int:
    try:
        pretty = pretty_of(text)
    except ValueError as error:
        raise ConfigError([f"URL: {error}"]) from error
    settings = _settings_to_render(text, config)
    target = Target.of(settings.public_url, pretty)
    # The ordinary course of things is for the log of a server.
    level = "warning" if settings.log.level == "info" else settings.log.level
    logs.configure(settings.log.model_copy(update={"level": level}))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            snapshot = runner.run(_snapshot(settings, target))
    except ConfigError:
        raise
    except PrerenderError as error:
        _say(f"prerender: {_failure(target, error)}")
        return _FAILED
    if snapshot.status != 200:
        headers = "".join(f", {name}: {value}" for name, value in snapshot.headers)
        _say(f"prerender: {target.url}: status {snapshot.status}{headers}")
    return _write(snapshot.body)


def _settings_to_render(text: str, config: Path | None) -> Settings:
    """The settings with the page's own site as the public one, and one page."""
    site = {"url": str(URL(text, encoded=True).origin())}
    overrides: dict[str, dict[str, object]] = {"site": dict(site), "browser": {"pages": 1}}
    if config is None and not {"PRERENDER_ORIGIN", "PRERENDER_ORIGIN_URL"} & set(os.environ):
        # Without an origin of its own the page is rendered straight from its site.
        overrides["origin"] = dict(site)
    return load(config, os.environ, overrides)


async def _snapshot(settings: Settings, target: Target) -> Snapshot:
    async with app.rendering(settings) as rendering:
        return (await rendering.renderer.snapshot(target)).snapshot


def _failure(target: Target, error: PrerenderError) -> str:
    match error:
        case NotRenderable():
            text = f"{target.url}: no HTML page: {error}"
        case OriginError():
            text = f"{target.url}: the site's server failed: {error.__cause__ or error}"
        case _:
            text = str(error)
    return " ".join(text.split())


def _write(body: bytes) -> int:
    try:
        sys.stdout.buffer.write(body)
        sys.stdout.flush()
    except OSError as error:
        # Whoever reads may stop early (| head). Python would try again at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            _say(f"prerender: the snapshot cannot be written: {error.strerror}")
        return _FAILED
    return 0
