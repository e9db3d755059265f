"""The check of [cdn] for ``prerender doctor``."""

from prerender.cli.diagnosis import Line
from prerender.config import Settings
from prerender.errors import ConfigError
from prerender.extensions.cdn.providers import CdnError, Client


async def examine(settings: Settings) -> list[Line]:
    """Ask the CDN whether the token is valid, which purges nothing."""
    cdn = settings.cdn
    if cdn.provider == "none":
        return []
    try:
        async with Client.open(cdn) as client:
            await client.check()
    except ConfigError as error:
        return [Line("cdn", "problem", error.problems[0], "correct the file or the setting")]
    except CdnError as error:
        text = f"{cdn.provider}: {error}"
        return [Line("cdn", "problem", text, "check [cdn] token, and that the API can be reached")]
    return [Line("cdn", "ok", f"{cdn.provider}: the token is valid")]
