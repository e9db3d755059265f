"""Distribution metadata that pyproject.toml cannot contain: the README for PyPI, and the project URLs.

PROJECT_URL: the URL of the repository, for example https://github.com/owner/prerender-proxy.
Without it, there are no project URLs, and the README has no relative links, which PyPI cannot resolve.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"\[([^\[\]]*)\]\((?!https?:|#)([^()\s]+)\)")


class Metadata(MetadataHookInterface):
    """Called by hatchling for each build."""

    def update(self, metadata: dict[str, object]) -> None:
        """Add the README and the URLs."""
        url = os.environ.get("PROJECT_URL", "").rstrip("/")
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": published(text, url)}
        if url:
            metadata["urls"] = {
                "Source": url,
                "Documentation": f"{url}/tree/main/docs",
                "Changelog": f"{url}/blob/main/CHANGELOG.md",
                "Issues": f"{url}/issues",
            }


def published(text: str, url: str) -> str:
    """Markdown with absolute links to other files, or without these links if ``url`` is ''."""
    return _LINK.sub(rf"[\1]({url}/blob/main/\2)" if url else r"\1", text)
