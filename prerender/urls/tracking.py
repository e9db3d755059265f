"""Tracking parameters: query parameters that do not change a page. Pure."""

from collections.abc import Iterable


class Tracking:
    """Removes tracking parameters. A name may end with ``*`` and is case-sensitive."""

    def __init__(self, names: Iterable[str]) -> None:
        names = tuple(names)
        self._names = frozenset(name for name in names if not name.endswith("*"))
        self._prefixes = tuple(name[:-1] for name in names if name.endswith("*"))

    def without(self, target: str) -> str:
        """The path and query without the parameters. The rest keeps its bytes and order."""
        path, question_mark, query = target.partition("?")
        if not question_mark:
            return target
        parameters = query.split("&")
        remaining = [parameter for parameter in parameters if not self._has_name(parameter)]
        if len(remaining) == len(parameters):
            return target
        return f"{path}?{'&'.join(remaining)}" if remaining else path

    def _has_name(self, parameter: str) -> bool:
        name = parameter.partition("=")[0]
        # An empty prefix comes from the name "*": every parameter except the empty one of "?&a=1".
        return name in self._names or bool(name and name.startswith(self._prefixes))


NO_TRACKING = Tracking(())
