"""Patterns of pages, as rules, purges and triggers have them. Pure."""


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern describes all of a page's path, query and ``#!`` fragment.

    ``*`` stands for any number of characters, everything else for itself. A regular expression made
    of it would take time by a power of the page's length, which is the client's to choose.
    """
    first, *others = pattern.split("*")
    if not others:
        return path == pattern
    *middle, last = others
    position, end = len(first), len(path) - len(last)
    if position > end or not path.startswith(first) or not path.endswith(last):
        return False
    for part in middle:
        position = path.find(part, position, end)
        if position < 0:
            return False
        position += len(part)
    return True
