"""Creates triggers and the verification of crawlers and signed agents from the settings."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from prerender.config import Settings
from prerender.config.crawler_classes import CLASSES, PRESETS, CrawlerClass
from prerender.config.presets import Preset
from prerender.config.settings import TriggerSettings
from prerender.config.types import Action
from prerender.crawlers import known
from prerender.crawlers.key_directories import FETCH_SECONDS, KeyDirectories
from prerender.crawlers.known import Crawler, Crawlers
from prerender.crawlers.published import PublishedRanges, Renewal
from prerender.crawlers.ranges import RangesFile
from prerender.crawlers.triggers import Paths, Triggers
from prerender.crawlers.verification import Identity, Names, Verifier
from prerender.crawlers.web_bot_auth import SignedAgents
from prerender.errors import ConfigError
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.upstream import open_session
from prerender.http.client_address import ReceivedRequest, client_address
from prerender.snapshots.stores.notes import Notes
from prerender.urls.hosts import Hosts, address_and_port


def crawlers_of(settings: Settings) -> Crawlers:
    """The known crawlers, with those of the owner's file and of [triggers] more.

    Raises ConfigError if the file is invalid.
    """
    triggers = settings.triggers
    crawlers = known.built_in()
    if triggers.crawlers_file:
        where = f"[triggers] crawlers_file: {triggers.crawlers_file}"
        try:
            crawlers = crawlers.changed_by(known.read(Path(triggers.crawlers_file)))
        except OSError as error:
            raise ConfigError([f"{where}: {error.strerror}"]) from error
        except ValueError as error:
            raise ConfigError([f"{where}: {line}" for line in str(error).split("\n")]) from error
    return crawlers.with_names(triggers.more)


def triggers_of(settings: Settings) -> Triggers:
    """The triggers of the settings. Raises ConfigError if the file of crawlers is invalid."""
    triggers = settings.triggers
    return Triggers(
        actions={one: _action(triggers, one) for one in CLASSES},
        crawlers=crawlers_of(settings),
        paths=Paths(triggers.include, triggers.exclude)
        if triggers.include or triggers.exclude
        else None,
        accept_markdown=triggers.markdown,
    )


def _action(triggers: TriggerSettings, crawler: CrawlerClass) -> Action:
    action: Action | Literal["preset"] = getattr(triggers, crawler)
    if action == "preset":
        return "render" if crawler in PRESETS[triggers.preset] else "forward"
    return action


def preset_for(settings: Settings, crawler: CrawlerClass) -> Preset | None:
    """The smallest preset that serves a class; None if its own setting decides, or no preset does."""
    if getattr(settings.triggers, crawler) != "preset":
        return None
    return next((preset for preset, classes in PRESETS.items() if crawler in classes), None)


@dataclass(frozen=True, slots=True)
class Verification:
    """``verify``: whether a request comes from the crawler that it names; None if [triggers] verify is
    off. ``published``: the lists of addresses that are renewed."""

    verify: Callable[[ReceivedRequest], Awaitable[bool]] | None
    published: tuple[PublishedRanges, ...]


@asynccontextmanager
async def verification(
    settings: Settings, crawlers: Crawlers, notes: Notes
) -> AsyncIterator[Verification]:
    """The verification of crawlers while the context is open. Lists of addresses are kept in ``notes``.

    Raises ConfigError if a file of address ranges is invalid, or of no known crawler.
    """
    triggers = settings.triggers
    if not triggers.verify:
        yield Verification(None, ())
        return
    trusted = settings.server.trusted_proxies
    published = published_of(settings, crawlers)
    try:
        names = Names(tuple(map(address_and_port, triggers.nameservers)))
        files = files_of_ranges(settings, crawlers)
        verifier = Verifier(_identities(crawlers, files, published), names)
    except ValueError as error:
        raise ConfigError([f"[triggers] nameservers: {error}"]) from error

    async def verify(request: ReceivedRequest) -> bool:
        client = client_address(request.remote, request.headers, trusted)
        return await verifier.is_genuine(request.headers.get("user-agent"), client)

    lists = tuple(published.values())
    renewal = Renewal(lists, AddressPolicy.of(settings), notes, verifier.forget)
    try:
        async with renewal.renewing():
            yield Verification(verify, lists)
    finally:
        await verifier.close()


@asynccontextmanager
async def signed_agents(settings: Settings) -> AsyncIterator[SignedAgents | None]:
    """The verification of signed agents; None if [triggers] verify_signatures is off."""
    if not settings.triggers.verify_signatures:
        yield None
        return
    network = settings.network
    policy = AddressPolicy(
        Hosts(network.allow), Hosts(network.deny), only_listed=network.third_parties == "listed"
    )
    async with open_session(policy, FETCH_SECONDS, FETCH_SECONDS) as session:
        directories = KeyDirectories(session)
        try:
            yield SignedAgents(directories, settings.public_url, Hosts(settings.site.hosts))
        finally:
            await directories.close()


def published_of(settings: Settings, crawlers: Crawlers) -> dict[str, PublishedRanges]:
    """The published lists that are needed, by URL: those of crawlers that get snapshots.

    Raises ConfigError if [triggers] ranges names a crawler that is not known.
    """
    triggers = settings.triggers
    from_files = {one for one, _ in files_of_ranges(settings, crawlers)}
    return {
        url: PublishedRanges(url)
        for one in crawlers.crawlers
        for url in one.ranges
        if triggers.renew_ranges
        and one not in from_files
        and _action(triggers, one.crawler) in ("render", "markdown")
    }


def files_of_ranges(settings: Settings, crawlers: Crawlers) -> list[tuple[Crawler, str]]:
    """The crawlers of [triggers] ranges, with their files. Raises ConfigError."""
    known = {one.label.lower(): one for one in crawlers.crawlers}
    known |= {one.name.lower(): one for one in crawlers.crawlers}
    problems = []
    for name, _ in settings.triggers.ranges:
        if name.lower() not in known:
            close = get_close_matches(name.lower(), known, n=1)
            remedy = (
                f"did you mean {known[close[0]].label}?" if close else "add it to [triggers] more"
            )
            problems.append(f"[triggers] ranges: {name!r} is no known crawler: {remedy}")
    if problems:
        raise ConfigError(problems)
    return [(known[name.lower()], file) for name, file in settings.triggers.ranges]


def check(settings: Settings) -> None:
    """Raise ConfigError for what is wrong with the files and names of crawlers, as at the start."""
    crawlers = crawlers_of(settings)
    if settings.triggers.verify:
        _identities(crawlers, files_of_ranges(settings, crawlers), {})


def _identities(
    crawlers: Crawlers,
    files: Sequence[tuple[Crawler, str]],
    published: Mapping[str, PublishedRanges],
) -> dict[str, Identity]:
    identities: dict[str, Identity] = {}
    from_files = {one for one, _ in files}
    for one in crawlers.crawlers:
        urls = one.ranges if one not in from_files else ()
        ranges = tuple(published[url] for url in urls if url in published)
        if one.domains or ranges:
            identities[one.name] = Identity(one.domains, ranges)
    for crawler, file in files:
        name = crawler.name
        identity = identities.get(name, Identity())
        try:
            identities[name] = replace(identity, ranges=(*identity.ranges, RangesFile(Path(file))))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError([f"[triggers] ranges: {file}: {reason}"]) from error
    return identities
