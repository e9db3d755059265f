"""Metadata of the distributions that pyproject.toml cannot hold: the README as PyPI shows it, and URLs.

PROJECT_URL is where the repository is published, for example https://github.com/owner/prerender-proxy.
Without it there are no project URLs, and the README has no links to other files: PyPI resolves none.
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
    """Markdown whose links to other files have ``url`` before them, or are plain text if it is ''."""
    return _LINK.sub(rf"[\1]({url}/blob/main/\2)" if url else r"\1", text)
