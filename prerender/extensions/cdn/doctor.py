"""The check of [cdn] for ``prerender doctor``."""

from prerender.cli.diagnosis import Line
from prerender.config import Settings
from prerender.errors import ConfigError
from prerender.extensions.cdn.providers import CdnClient, CdnError

UNUSED_TAG = "prerender-doctor"
_REMEDY = "check [cdn] zone, the token and its permissions, and that the API can be reached"


async def examine(settings: Settings) -> list[Line]:
    """Purge a tag that no page has: nothing else tells whether the token may purge the zone."""
    cdn = settings.cdn
    if cdn.provider == "none":
        return []
    try:
        async with CdnClient.open(cdn) as client:
            await client.purge([UNUSED_TAG], soft=True)
    except ConfigError as error:
        return [Line("cdn", "problem", error.problems[0], "correct the file or the setting")]
    except CdnError as error:
        text = f"{cdn.provider}: {error}"
        return [Line("cdn", "problem", text, _REMEDY)]
    return [Line("cdn", "ok", f"{cdn.provider}: the token may purge the zone")]
