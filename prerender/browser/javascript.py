"""Bundles the JavaScript modules of scripts/ into the body of one function, each after those that it
imports, as a browser evaluates them.

Imports are ``import { a, b } from "./module.js";`` or ``import "./module.js";``, and exports are
declarations. All modules share one scope, so their top-level names differ.
"""

import re
from importlib.resources import files

_FOLDER = files("prerender.browser") / "scripts"
_IMPORT = re.compile(r'^import (?:\{[^}]*\} from )?"\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|let|function) )", re.MULTILINE)


def source(path: str) -> str:
    """The text of a script."""
    return (_FOLDER / path).read_text("utf-8")


def bundle(folder: str, entry: str) -> str:
    """The module ``entry`` with all that it imports, as statements."""
    modules: dict[str, str] = {}
    begun: set[str] = set()

    def add(name: str) -> None:
        if name in begun:
            return
        begun.add(name)
        text = source(f"{folder}/{name}.js")
        for module in _IMPORT.findall(text):
            add(module)
        modules[name] = _EXPORT.sub("", _IMPORT.sub("", text))

    add(entry)
    return "".join(modules.values())
