"""Fields in which a client weighs what it would like: ``a;q=0.5, b`` (RFC 9110, 12.4.2). Pure."""

import re

_WEIGHT = re.compile(r"q\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)", re.ASCII | re.IGNORECASE)


def weights(value: str) -> dict[str, float]:
    """The members of a field, in lower case, and how much each is liked.

    Parameters other than the weight belong to the member (``a;x=1``). Of one that is there twice the
    greater weight counts; one with a malformed weight is left out.
    """
    found: dict[str, float] = {}
    for member in value.lower().split(","):
        parts = [part.strip(" \t") for part in member.split(";")]
        weight = 1.0
        if len(parts) > 1 and parts[-1].partition("=")[0].rstrip(" \t") == "q":
            match = _WEIGHT.fullmatch(parts.pop())
            weight = float(match[1]) if match else -1.0
        if parts[0] and weight >= 0:
            name = ";".join(parts)
            found[name] = max(found.get(name, 0.0), weight)
    return found


def preferences(value: str) -> list[str]:
    """The members that are wanted at all, best first; equal ones in their order."""
    weighed = weights(value)
    return sorted((name for name, weight in weighed.items() if weight), key=lambda n: -weighed[n])
