"""The file with the tokens of the admin listener, which changes while the proxy runs."""

from pathlib import Path

import structlog

from prerender.config.types import AUTO, admin_tokens
from prerender.config.watched_file import WatchedFile, reason_of
from prerender.errors import ConfigError

# A request with a token that has just been removed is accepted for so long.
LOOK_SECONDS = 1.0

log = structlog.get_logger(__name__)


class TokenFile:
    """The tokens in a file, one per line."""

    def __init__(self, path: str) -> None:
        """Read it. Raises ConfigError."""
        try:
            self._file = WatchedFile(
                Path(path), _tokens, LOOK_SECONDS, unreadable="admin_tokens_unreadable"
            )
        except (OSError, ValueError) as error:
            raise ConfigError([f"[admin] token_file: {path}: {reason_of(error)}"]) from error

    def tokens(self) -> tuple[str, ...]:
        """The tokens, of which there is at least one."""
        if self._file.due and self._file.look():
            log.info("admin_tokens_changed", count=len(self._file.content))
        return self._file.content


def _tokens(text: str) -> tuple[str, ...]:
    """Parse the lines of the file. Raises ValueError, which does not contain them."""
    try:
        tokens = admin_tokens([line.strip() for line in text.splitlines() if line.strip()])
    except ValueError:
        tokens = ()
    if not tokens or tokens == (AUTO,):
        raise ValueError(
            "give one token per line, of at least 16 ASCII characters without spaces and commas"
        )
    return tokens
