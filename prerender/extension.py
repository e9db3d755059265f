"""The seams of the proxy: what an extension may add to.

An extension is a package with a module ``extension`` that has ``extend(proxy)``, an asynchronous
context manager. It is entered when all parts exist and before the proxy listens, and closed after the
proxy has stopped listening. plugins.py finds it; the core does not import it, and works without it.

- Records of requests and renders: ``telemetry.requests.subscribe``, ``telemetry.renders.subscribe``;
  of crawlers in batches: ``telemetry.crawler_requests.subscribe``.
- New snapshots with their documents: ``rendering.renderer.when_built``, called in a thread.
- Stored snapshots: ``snapshots.when_stored`` and ``before_storing``; a line beside each in the store,
  which is removed with it: ``store.keep_lines``.
- Routes of the admin listener: ``admin.add``. listener.py authorizes their requests.
- Metrics: ``metrics.watch``, ``remembered``.
- Messages to [webhooks] url: ``outbox``, None without one.
- Header lines of snapshots: ``handler.lines_of``.
- A tab of the browser: ``rendering.pool``.
- Kinds of stores: a module ``store_kind``. Checks of ``prerender doctor``: a module ``doctor``.
- Commands: modules in ``commands`` (cli/program.py).
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from prerender.admin.auth import AdminAuth
from prerender.admin.explain import Explanations
from prerender.admin.page_urls import Site
from prerender.admin.purge import Purging
from prerender.admin.routes import Routes
from prerender.config import Settings
from prerender.crawlers.published import PublishedRanges
from prerender.crawlers.triggers import Triggers
from prerender.outbox import Outbox
from prerender.proxy.client_connection import RequestHandler
from prerender.proxy.handler import Handler
from prerender.rendering.from_settings import Rendering
from prerender.snapshots.freshness import Freshness
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.snapshots.variants import Variant
from prerender.telemetry.metrics import Metrics
from prerender.telemetry.telemetry import Telemetry


@dataclass(slots=True)
class Proxy:
    """The parts of a proxy.

    ``respond``: responds to public requests; it may be wrapped. ``remembered``: objects with lists of
    what clients and pages sent, by their name in the metrics. ``variants``: all that a page may
    have. ``while_serving``: entered when the proxy listens, and closed before it stops.
    """

    settings: Settings
    rendering: Rendering
    store: Store
    telemetry: Telemetry
    metrics: Metrics
    freshness: Freshness
    snapshots: CachedSnapshots
    triggers: Triggers
    published: Sequence[PublishedRanges]
    target_of: Callable[..., Target]
    variants: Sequence[Variant]
    handler: Handler
    respond: RequestHandler
    auth: AdminAuth
    site: Site
    admin: Routes
    explanations: Explanations
    purging: Purging
    outbox: Outbox | None
    remembered: dict[str, object] = field(default_factory=dict)
    while_serving: list[AbstractAsyncContextManager[None]] = field(default_factory=list)
