"""How the documentation is built: make docs."""

from prerender import __version__

project = "prerender-proxy"
version = release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"{project} {version}"
html_show_sourcelink = False
html_copy_source = False
# Quotation marks around values stay what one has to type.
smartquotes = False
