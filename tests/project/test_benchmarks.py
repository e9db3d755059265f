"""The benchmarks can be started: whoever wants figures is not to find that they have rotted."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT

SHARED = ("measuring.py", "renderers.py", "bare_loop.py")
SCRIPTS = [file for file in sorted((ROOT / "benchmarks").glob("*.py")) if file.name not in SHARED]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_they_explain_themselves(script: Path) -> None:
    done = subprocess.run(
        [sys.executable, script, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout
