"""Servers for the tests of stores."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.redis_server import RedisServer, redis_server
from tests.support.s3_server import S3Server, s3_server


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture(scope="module")
async def s3() -> AsyncIterator[S3Server]:
    async with s3_server() as running:
        yield running


@pytest.fixture
async def redis(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as running:
        yield running
