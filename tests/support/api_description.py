"""The OpenAPI description of the admin API, as a proxy serves it."""

from functools import cache
from itertools import chain
from typing import Any

from prerender.admin.explain import Explanations
from prerender.admin.listener import Description
from prerender.admin.openapi import document
from prerender.admin.purge import Purging
from prerender.admin.routes import operations_of
from prerender.extensions.dashboard.api import Api
from prerender.extensions.dashboard.snapshot_details import SnapshotHandlers
from prerender.extensions.jobs.api import JobsApi, SitemapsApi
from prerender.tools.export.imports import ImportApi
from prerender.visits.api import ReportApi

_PARTS = (
    Description,
    Purging,
    Explanations,
    Api,
    SnapshotHandlers,
    ImportApi,
    ReportApi,
    JobsApi,
    SitemapsApi,
)


@cache
def description() -> dict[str, Any]:
    """The description, made once: that takes a second."""
    return document(operation for _, operation in chain.from_iterable(map(operations_of, _PARTS)))
