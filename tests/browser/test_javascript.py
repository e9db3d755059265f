"""Modules of the probe and of the serializer become one function each."""

import re

import pytest

from prerender.browser import javascript

ENTRIES = [("probe", "state"), ("serialize", "html")]
_DECLARED = re.compile(r"^(?:const|let|function) (\w+|\{[^}]*\})", re.MULTILINE)


@pytest.mark.parametrize(("folder", "entry"), ENTRIES)
def test_a_bundle_has_each_module_once_after_its_imports(folder: str, entry: str) -> None:
    bundle = javascript.bundle(folder, entry)
    assert not re.search(r"^(?:import|export) ", bundle, re.MULTILINE)
    paths = sorted((javascript._FOLDER / folder).iterdir(), key=lambda path: path.name)
    for path in paths:
        module = path.name.removesuffix(".js")
        text = javascript.source(f"{folder}/{path.name}")
        assert bundle.count(ending(text)) == 1, f"{module} is not in the bundle"
        for name in javascript._IMPORT.findall(text):
            imported = javascript.source(f"{folder}/{name}.js")
            assert bundle.index(ending(imported)) < bundle.index(ending(text)), (module, name)


def ending(text: str) -> str:
    """The last lines of a module."""
    return javascript._EXPORT.sub("", text)[-200:]


@pytest.mark.parametrize(("folder", "entry"), ENTRIES)
def test_top_level_names_of_modules_differ(folder: str, entry: str) -> None:
    names = [
        part.rpartition(":")[2].strip(" {}\n.")
        for declared in _DECLARED.findall(javascript.bundle(folder, entry))
        for part in declared.split(",")
    ]
    assert len(names) > 30
    assert sorted(names) == sorted(set(names))
