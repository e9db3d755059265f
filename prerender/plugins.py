"""Finds what extensions add by the names of their modules, so that nothing lists them.

An extension is a package of ``prerender`` or ``prerender.extensions`` with a module ``extension``
(extension.py says what that does), ``store_kind``, ``doctor`` or ``commands``. If it is not installed,
it is not there.
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

_ROOT = Path(__file__).parent


@cache
def having(name: str) -> tuple[str, ...]:
    """The full names of the modules or packages ``name`` of all packages."""
    names = []
    for folder, package in ((_ROOT, "prerender"), (_ROOT / "extensions", "prerender.extensions")):
        for module in iter_modules([str(folder)]):
            part = folder / module.name / name
            if part.is_dir() or part.with_suffix(".py").is_file():
                names.append(f"{package}.{module.name}.{name}")
    return tuple(names)


def modules(name: str) -> Iterator[ModuleType]:
    """The modules ``name`` of all packages."""
    return map(import_module, having(name))
