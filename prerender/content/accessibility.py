"""The accessibility tree of a page, as used by screen readers. Pure.

Chromium's accessibility tree as a list of elements with a role, a name and states. Plain text is left
out; it is compared separately.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Roles without information of their own, apart from their text.
_SILENT = frozenset(
    {
        "InlineTextBox",
        "LabelText",
        "LineBreak",
        "ListMarker",
        "RootWebArea",
        "StaticText",
        "generic",
        "none",
        "paragraph",
    }
)
# In a snapshot, what scripts have drawn is an image.
_SAME_ROLES = {"Canvas": "image"}
# States that screen readers announce, by name or with their value.
_STATES = ("level", "checked", "pressed", "expanded", "selected", "disabled", "required", "modal")
_UNSET = (False, "false", None)
_LONGEST_NAME = 100
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Announcement:
    """An element: its role, its name, and its states, such as ``level 2`` or ``expanded``."""

    role: str
    name: str
    states: tuple[str, ...]

    @property
    def meaning(self) -> "Announcement":
        """A form that ignores times and counters in the name.

        Whitespace is removed, because it depends on the number of text nodes.
        """
        name = _DIGITS.sub("0", "".join(self.name.split()))
        return Announcement(self.role, name, self.states)

    def __str__(self) -> str:
        return ", ".join([f"{self.role} “{self.name}”" if self.name else self.role, *self.states])


def announced(nodes: Iterable[Mapping[str, Any]]) -> tuple[Announcement, ...]:
    """The elements of the nodes of a tree (Chrome DevTools Protocol, Accessibility.AXNode)."""
    return tuple(
        _announcement(node, role)
        for node in nodes
        if not node.get("ignored") and (role := _value(node, "role")) not in _SILENT
    )


def lost(page: Iterable[Announcement], snapshot: Iterable[Announcement]) -> list[str]:
    """The elements that are announced on a page, but not, or less often, in its snapshot."""
    left = Counter(one.meaning for one in snapshot)
    missing = []
    for one in page:
        if left[one.meaning] > 0:
            left[one.meaning] -= 1
        else:
            missing.append(str(one))
    return missing


def _announcement(node: Mapping[str, Any], role: str) -> Announcement:
    name = " ".join(_value(node, "name").split())
    if len(name) > _LONGEST_NAME:
        name = f"{name[:_LONGEST_NAME]}…"
    properties = {one["name"]: one["value"].get("value") for one in node.get("properties", ())}
    states = (
        state if str(properties[state]).lower() == "true" else f"{state} {properties[state]}"
        for state in _STATES
        if properties.get(state) not in _UNSET
    )
    return Announcement(_SAME_ROLES.get(role, role), name, tuple(states))


def _value(node: Mapping[str, Any], key: str) -> str:
    return str(node.get(key, {}).get("value", ""))
