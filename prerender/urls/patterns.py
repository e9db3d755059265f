"""Patterns of pages, as rules, purges and triggers have them. Pure."""


def matches(pattern: str, page: str) -> bool:
    """Whether a pattern describes all of a page's path, query and ``#!`` fragment.

    ``*`` stands for any number of characters, everything else for itself. A regular expression made
    of it would take time by a power of the page's length, which is the client's to choose.
    """
    first, *others = pattern.split("*")
    if not others:
        return page == pattern
    *middle, last = others
    position, end = len(first), len(page) - len(last)
    if position > end or not page.startswith(first) or not page.endswith(last):
        return False
    for part in middle:
        position = page.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True
