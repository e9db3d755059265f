"""[server] of tests without settings."""

from prerender.config.settings import ServerSettings


def limits(seconds: float = 5, **timeouts: float) -> ServerSettings:
    """Each timeout is ``seconds``, except those given; no proxies are trusted."""
    names = ("header_timeout", "body_timeout", "write_timeout", "idle_timeout")
    changed = {**dict.fromkeys(names, seconds), **timeouts, "trusted_proxies": ()}
    return ServerSettings().model_copy(update=changed)
