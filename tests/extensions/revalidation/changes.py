"""Changes the responses of an application one at a time, and asks whether its page is the same."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from aiohttp import web

from tests.conftest import StartOrigin
from tests.extensions.revalidation.asking import asking
from tests.support.browsers import Browsers

KINDS = ("body", "status", "header")


@dataclass
class Tally:
    """What was found. ``stale``: changes that were not noticed, ``lost``: pages that counted as changed
    although nothing was; both with what was found. ``excluded``: pages that are always rendered, by
    reason."""

    pages: int = 0
    changes: int = 0
    stale: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    excluded: Counter[str] = field(default_factory=Counter)


class Changer:
    """A middleware that notes what is requested, and changes one response."""

    def __init__(self) -> None:
        self.seen: dict[str, None] = {}
        self.target = ""
        self.kind = "body"
        self.has_changed = False

    async def change_stream(self, request: web.Request, response: web.StreamResponse) -> None:
        """Change the head of a streamed response."""
        is_stream = not isinstance(response, (web.Response, web.FileResponse))
        if is_stream and f"{request.method} {request.path_qs}" == self.target:
            response.headers["X-Changed"] = "1"
            self.has_changed = True

    @web.middleware
    async def change(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Respond, perhaps with a change."""
        asked = f"{request.method} {request.path_qs}"
        self.seen[asked] = None
        try:
            response = await handler(request)
        except web.HTTPException as other:
            response = other
        if asked != self.target or response.prepared:
            return response
        body = b""
        if isinstance(response, web.FileResponse):
            body = response._path.read_bytes()
        elif isinstance(response, web.Response) and isinstance(response.body, bytes):
            body = response.body
        headers = response.headers.copy()
        for name in ("Content-Length", "ETag", "Last-Modified"):
            headers.popall(name, None)
        if isinstance(response, web.FileResponse) and "Content-Type" not in headers:
            headers["Content-Type"] = response.content_type
        status = response.status
        if self.kind == "body":
            body += b"\n"
        elif self.kind == "status":
            status = 203 if status == 200 else 200
        else:
            headers["X-Changed"] = "1"
        self.has_changed = True
        return web.Response(status=status, headers=headers, body=body)


async def changed_one_by_one(
    application: web.Application,
    pages: Iterable[str],
    start_origin: StartOrigin,
    browsers: Browsers,
) -> Tally:
    """Render each page, and change each of the responses that it got."""
    changer, tally = Changer(), Tally()
    application.middlewares.append(changer.change)
    application.on_response_prepare.append(changer.change_stream)
    site = await start_origin(application)
    async with asking(site, browsers, {"render": {"timeout": 20}}) as asker:
        for page in pages:
            changer.seen.clear()
            kept = await asker.render(page)
            if not kept.snapshot.manifest:
                tally.excluded[kept.snapshot.unrenewable.partition(" ")[0] or "error"] += 1
                continue
            tally.pages += 1
            found = await asker.ask(kept)
            if found.result != "same":
                tally.lost.append(f"{page}: {found}")
                continue
            for number, asked in enumerate(list(changer.seen)):
                changer.target = asked
                changer.kind = KINDS[number % len(KINDS)]
                changer.has_changed = False
                asker.forget_assets()
                found = await asker.ask(kept)
                # Pages cannot read responses to beacons.
                if not changer.has_changed or asked.startswith("POST"):
                    continue
                tally.changes += 1
                if found.result == "same":
                    tally.stale.append(f"{page}: {changer.kind} of {changer.target}")
            changer.target = ""
    return tally
