"""Crawlers get snapshots while processes of the browser are killed (support/chaos.py)."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.conftest import StartOrigin, StartProxy
from tests.support import chaos
from tests.support.pools import shop_and_proxy


@pytest.mark.long
@pytest.mark.usefixtures("no_shared_browser")
async def test_every_answer_is_a_snapshot_or_a_refusal(
    start_origin: StartOrigin,
    start_own_proxy: StartProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _, proxy = await shop_and_proxy(start_origin, start_own_proxy, 2)
    outcome = await chaos.run(proxy, pages=2, clients=3, seconds=10, seed=20, merciful=True)
    assert outcome.wrong == []
    # There are not many on a slow machine.
    assert len(outcome.refused) <= 2 + 0.05 * len(outcome.snapshots)
    assert outcome.browsers > 1
    assert outcome.after
    assert outcome.changes == {}
    assert len(os.listdir(tmp_path)) == 1
