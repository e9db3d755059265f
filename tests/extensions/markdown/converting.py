"""Pages converted to Markdown."""

from prerender.extensions.markdown.convert import markdown_of


def content_of(html: str, url: str) -> str:
    """The Markdown of a page without its front matter."""
    text = markdown_of(html.encode(), url).decode()
    front, _, content = text.removeprefix("---\n").partition("---\n")
    assert "url: " in front
    return content.strip()
