"""A release has one version, and is published after CI."""

import re
import subprocess
from typing import Any

import pytest
import yaml

from prerender import __version__
from tests.support.commands import ROOT

RELEASE = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))
CI = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
PUBLISHING = ("image", "chart", "dist", "docs")
# Each has the version of the release so many times.
VERSIONED = {
    "deploy/helm/prerender-proxy/Chart.yaml": (r"^(?:appV|v)ersion: (.*)$", 2),
    "deploy/kubernetes/replicas.yaml": (r"/prerender-proxy:(\S+)$", 1),
    "deploy/kubernetes/sidecar.yaml": (r"/prerender-proxy:(\S+)$", 1),
    "docs/deployment.md": (r"/prerender-proxy:(\S+)$", 2),
    "Dockerfile": (r'image\.version="(.*?)"', 1),
}


@pytest.mark.parametrize("file", VERSIONED)
def test_the_version_is_that_of_the_package(file: str) -> None:
    pattern, count = VERSIONED[file]
    found = re.findall(pattern, (ROOT / file).read_text("utf-8"), re.MULTILINE)
    assert found == [__version__] * count


def test_the_changelog_has_the_version() -> None:
    """Below what is not released yet, with its date."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    first, second = re.findall(r"^## (.*)$", text, re.MULTILINE)[:2]
    assert first == "Unreleased"
    assert re.fullmatch(rf"{re.escape(__version__)} - 20\d\d-\d\d-\d\d", second)


def checked(tag: str) -> subprocess.CompletedProcess[str]:
    """What the release workflow does first with a tag."""
    (run,) = (step["run"] for step in RELEASE["jobs"]["version"]["steps"] if "run" in step)
    command = run.replace("$GITHUB_REF_NAME", tag)
    return subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_tag_that_is_not_the_version_publishes_nothing() -> None:
    assert checked(f"v{__version__}").returncode == 0
    for tag in ("v9.9.9", __version__, ""):
        refused = checked(tag)
        assert refused.returncode != 0
        assert f"v{__version__}" in refused.stderr


def test_publishing_waits_for_ci() -> None:
    jobs: dict[str, dict[str, Any]] = RELEASE["jobs"]
    assert set(jobs) == {"version", "ci", *PUBLISHING}
    assert jobs["ci"] == {"needs": "version", "uses": "./.github/workflows/ci.yml"}
    assert all(jobs[name]["needs"] == "ci" for name in PUBLISHING)
    # YAML 1.1 reads the key "on" as true.
    assert "workflow_call" in CI[True]
