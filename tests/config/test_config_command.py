"""``prerender config``: the effective settings and their sources, without secrets."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.cli import main
from prerender.config import Settings, load
from prerender.config.load import load_with_sources
from prerender.config.show import as_json, as_toml, toml

TOKEN = "a-token-of-some-length"
FILE = """
[origin]
url = "http://app:3000"
[cache]
url = "redis://me:s3cret@store:6379/0"
rules = [{ path = "/news/*", ttl = "5m" }, { path = "/#!/my/*", ttl = "never" }]
tracking_parameters = ["utm_*", 'quo"te']
[triggers]
more = [{ class = "social", name = "ExampleBot" }]
[server]
trusted_proxies = ["10.0.0.0/8"]
grace = "1500ms"
[snapshot]
volatile = ['nonce="[^"]*"', "\\u007f"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def test_what_is_printed_is_a_settings_file_that_says_the_same(file: Path, tmp_path: Path) -> None:
    settings, sources = load_with_sources(file, {})
    printed = tmp_path / "printed.toml"
    printed.write_text(as_toml(settings, sources), encoding="utf-8")
    # Of what is hidden it says nothing.
    again = {"PRERENDER_CACHE_URL": settings.cache.url}
    assert load(printed, again) == settings


def test_every_setting_is_there_with_its_source(file: Path) -> None:
    environ = {"PRERENDER_SERVER_PORT": "99", "PRERENDER_ORIGIN": "http://other:1"}
    told = as_json(*load_with_sources(file, environ))
    assert [(section, key) for section, keys in told.items() for key in keys] == [
        (section, key)
        for section, part in Settings.model_fields.items()
        for key in part.annotation.model_fields  # type: ignore[union-attr]
    ]
    assert told["server"]["port"] == {"value": 99, "source": "PRERENDER_SERVER_PORT"}
    assert told["origin"]["url"] == {"value": "http://other:1", "source": "PRERENDER_ORIGIN"}
    assert told["server"]["grace"] == {"value": 1.5, "source": str(file)}
    assert told["cache"]["ttl"] == {"value": 3600, "source": "default"}


def test_secrets_are_hidden(file: Path) -> None:
    settings, sources = load_with_sources(file, {"PRERENDER_ADMIN_TOKEN": TOKEN})
    for printed in (as_toml(settings, sources), json.dumps(as_json(settings, sources))):
        assert TOKEN not in printed
        assert "s3cret" not in printed
        assert "PRERENDER_ADMIN_TOKEN" in printed
        assert "***@store:6379/0" in printed
    assert as_json(settings, sources)["admin"]["token"]["hidden"] is True


def test_headers_are_shown_without_their_values() -> None:
    headers = '["Authorization: Basic s3cret", "X-From: https://s3cret.example/"]'
    given = {"PRERENDER_ORIGIN": "http://app:1", "PRERENDER_ORIGIN_HEADERS": headers}
    settings, sources = load_with_sources(None, given)
    assert "s3cret" not in as_toml(settings, sources) + repr(settings)
    told = as_json(settings, sources)["origin"]["headers"]
    assert told["value"] == ["Authorization: ***", "X-From: ***"]
    assert told["hidden"] is True


def test_what_holds_no_secret_is_not_hidden() -> None:
    told = as_json(*load_with_sources(None, {"PRERENDER_ORIGIN": "http://app:1"}))
    assert told["cache"]["url"] == {"value": "memory://", "source": "default"}
    assert told["admin"]["token"] == {"value": [], "source": "default"}


@given(st.recursive(st.text(), st.lists) | st.integers() | st.floats(0, 2**40) | st.booleans())
def test_values_are_toml(value: object) -> None:
    assert tomllib.loads(f"key = {toml(value)}") == {"key": value}


def test_the_command(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PRERENDER_ORIGIN", raising=False)
    assert main(["config", "--config", str(file)]) == 0
    assert 'url = "http://app:3000"  # ' in capsys.readouterr().out
    assert main(["config", "--json", "--config", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["origin"]["url"]["value"] == "http://app:3000"
    assert main(["config", "--check", "--config", str(file)]) == 0
    assert capsys.readouterr() == ("", "")


def test_check_of_what_is_wrong(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[origin]\nurl = 3\n", encoding="utf-8")
    assert main(["config", "--check", "--config", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("prerender config: [origin] url (from ")


def test_the_check_reads_the_ranges_of_crawlers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, said in (("GPTBo", "did you mean GPTBot?"), ("GPTBot", "No such file")):
        path = tmp_path / "settings.toml"
        path.write_text(
            '[origin]\nurl = "http://app:3000"\n[triggers]\nverify = true\n'
            f'ranges = [{{ name = "{name}", file = "{tmp_path}/none.json" }}]\n'
        )
        assert main(["config", "--check", "--config", str(path)]) == 2
        assert said in capsys.readouterr().err
