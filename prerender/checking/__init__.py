"""Checks what crawlers get of a site: page by page, and beside what people see."""
