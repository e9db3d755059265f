"""Serve AI agents the admin API of a running proxy by the Model Context Protocol.

Examples:
  prerender mcp
  prerender mcp --admin http://10.0.0.5:8081
"""

import argparse

from prerender.cli import common
from prerender.config import load
from prerender.errors import ConfigError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    common.add_admin(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve standard input and output until the input ends. Raises AdminError and ConfigError."""
    try:
        from prerender.extensions.mcp.server import server_of  # noqa: PLC0415 (optional)
    except ImportError as error:
        raise ConfigError(
            [f"{error}: install it with pip install 'prerender-proxy[mcp]'"]
        ) from error
    settings = load(options.config, origin_needed=False)
    server_of(common.admin_of(options), settings.render.timeout).run()
    return 0
