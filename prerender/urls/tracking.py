"""Query parameters that tell where a visitor came from, and nothing about the page. Pure."""

from collections.abc import Iterable


class Tracking:
    """Leaves parameters out of targets. A name may end with ``*`` and is case sensitive otherwise."""

    def __init__(self, names: Iterable[str]) -> None:
        names = tuple(names)
        self._names = frozenset(name for name in names if not name.endswith("*"))
        self._prefixes = tuple(name[:-1] for name in names if name.endswith("*"))

    def without(self, target: str) -> str:
        """Path and query without the parameters; what remains stays byte for byte, in its order."""
        path, question_mark, query = target.partition("?")
        if not question_mark:
            return target
        parameters = query.split("&")
        kept = [parameter for parameter in parameters if not self._has_name(parameter)]
        if len(kept) == len(parameters):
            return target
        return f"{path}?{'&'.join(kept)}" if kept else path

    def _has_name(self, parameter: str) -> bool:
        name = parameter.partition("=")[0]
        # An empty prefix is the name "*": every parameter, but not the empty one of "?&a=1".
        return name in self._names or bool(name and name.startswith(self._prefixes))


NO_TRACKING = Tracking(())
