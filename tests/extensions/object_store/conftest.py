"""The servers of the tests of stores."""

from tests.snapshots.stores.conftest import credentials, redis, s3

__all__ = ["credentials", "redis", "s3"]
