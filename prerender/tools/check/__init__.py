"""Checks what crawlers get of a site, page by page, against what visitors see."""
