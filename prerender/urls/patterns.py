"""Path patterns of rules, purges and triggers. Pure."""


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern matches a whole path with query and ``#!`` fragment.

    ``*`` matches any number of characters, everything else itself. A regular expression could
    take polynomial time for paths that a client chooses.
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
