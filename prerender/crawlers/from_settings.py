"""Creates triggers and the verification of crawlers and signed agents from the settings."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from prerender.config import Settings
from prerender.config.settings import Triggers as TriggerSettings
from prerender.config.types import CLASSES, PRESETS, Action, CrawlerClass
from prerender.crawlers.key_directories import FETCH_SECONDS, KeyDirectories
from prerender.crawlers.ranges import RangesFile
from prerender.crawlers.triggers import Paths, Triggers
from prerender.crawlers.user_agents import known_domains
from prerender.crawlers.verification import Identity, Names, Verifier
from prerender.crawlers.web_bot_auth import SignedAgents
from prerender.errors import ConfigError
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.upstream import open_session
from prerender.http.client_address import Received, client_address
from prerender.urls.hosts import Hosts, address_and_port


def triggers_of(settings: Settings) -> Triggers:
    """The triggers of the settings."""
    triggers = settings.triggers
    more: dict[CrawlerClass, tuple[str, ...]] = {}
    for known, name in triggers.more:
        more[known] = (*more.get(known, ()), name)
    return Triggers(
        actions={known: _action(triggers, known) for known in CLASSES},
        more=more,
        paths=Paths(triggers.include, triggers.exclude)
        if triggers.include or triggers.exclude
        else None,
        accept_markdown=triggers.markdown,
    )


def _action(triggers: TriggerSettings, known: CrawlerClass) -> Action:
    action: Action | Literal["preset"] = getattr(triggers, known)
    if action == "preset":
        return "render" if known in PRESETS[triggers.preset] else "forward"
    return action


@asynccontextmanager
async def verification(
    settings: Settings,
) -> AsyncIterator[Callable[[Received], Awaitable[bool]] | None]:
    """A function that verifies the crawler of a request; None if [triggers] verify is off.

    Raises ConfigError if a file of address ranges is invalid.
    """
    triggers = settings.triggers
    if not triggers.verify:
        yield None
        return
    trusted = settings.server.trusted_proxies
    try:
        verifier = Verifier(
            identities(triggers.ranges), Names(tuple(map(address_and_port, triggers.nameservers)))
        )
    except ValueError as error:
        raise ConfigError([f"[triggers] nameservers: {error}"]) from error

    async def verify(request: Received) -> bool:
        client = client_address(request.remote, request.headers, trusted)
        return await verifier.is_genuine(request.headers.get("user-agent"), client)

    try:
        yield verify
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


def identities(ranges: tuple[tuple[str, str], ...]) -> dict[str, Identity]:
    """What genuine crawlers are known by. Raises ConfigError for an invalid file of address ranges."""
    found = {name: Identity(domains) for name, domains in known_domains().items()}
    for name, file in ranges:
        identity = found.get(name, Identity())
        try:
            found[name] = replace(identity, ranges=(*identity.ranges, RangesFile(Path(file))))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError([f"[triggers] ranges: {file}: {reason}"]) from error
    return found
