"""Asks for the inputs of rendered pages directly, without a proxy and its cache."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from yarl import URL

from prerender.extensions.revalidation.extension import revalidator_of
from prerender.extensions.revalidation.revalidator import Revalidator
from prerender.gateway.assets import AssetStore
from prerender.rendering.renderer import Renderer
from prerender.snapshots import steady_clock
from prerender.snapshots.renewals import Renewals, RevalidationResult
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.notes import Notes
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import Site, settings_for
from tests.support.browsers import Browsers

# Enough for the next checks to be rare.
TRUSTED = 6


@dataclass(frozen=True)
class Kept:
    """A stored snapshot."""

    target: Target
    snapshot: Snapshot
    renewals: Renewals | None


@dataclass
class Asker:
    """Renders pages, and asks for their inputs."""

    public: URL
    renderer: Renderer
    revalidator: Revalidator
    assets: AssetStore
    generation: int = 0

    async def render(self, page: str) -> Kept:
        """Render a page, and take it for a trusted one."""
        target = Target.of(self.public, PrettyURL(page, ""))
        new = (await self.renderer.snapshot(target)).snapshot
        state = Renewals(steady_clock.now(), confirmed=TRUSTED)
        untried = RevalidationResult("untried")
        stored, _ = await self.revalidator.after_render(target, None, new, untried, state.rendered)
        return Kept(target, stored, state)

    async def ask(self, kept: Kept) -> RevalidationResult:
        """Ask for the inputs of a page, without what was learned for other pages."""
        self.generation += 1
        return await self.ask_soon(kept)

    async def ask_soon(self, kept: Kept) -> RevalidationResult:
        """Ask for the inputs of a page that no other page had just now."""
        now = steady_clock.now()
        return await self.revalidator.ask(kept.target, kept, now, self.generation)

    def forget_assets(self) -> None:
        """Empty the asset cache: what is fresh there is not asked for."""
        self.assets.clear()

    async def check(self, kept: Kept, revalidated: RevalidationResult) -> Kept:
        """Render again after a finding."""
        new = (await self.renderer.snapshot(kept.target)).snapshot
        after = self.revalidator.after_render(
            kept.target, kept, new, revalidated, steady_clock.now()
        )
        stored, state = await after
        return replace(kept, snapshot=stored, renewals=state)


@asynccontextmanager
async def asking(
    site: Site, browsers: Browsers, overrides: dict[str, dict[str, object]] | None = None
) -> AsyncIterator[Asker]:
    """An asker about the pages of a site, which borrows a browser."""
    overrides = {"cache": {"revalidate": True}, **(overrides or {})}
    settings = settings_for(site.url, overrides)
    async with browsers.lend(settings) as parts:
        notes = Notes(None, BoundedMemoryCache(10_000_000))
        revalidator = revalidator_of(settings, parts, notes)
        yield Asker(settings.public_url, parts.renderer, revalidator, parts.gateway.assets.store)
