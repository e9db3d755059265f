"""Origins of several tests."""

from aiohttp import web


def only_for_its_own_host() -> web.Application:
    """A site like a development server's, which refuses other hosts than its own address."""

    async def page(request: web.Request) -> web.Response:
        if not request.host.startswith("127.0.0.1:"):
            text = f"Blocked request. This host ({request.host}) is not allowed."
            return web.Response(status=403, text=text)
        text = "<p id=out>shell</p><script>out.textContent = 'made'</script>"
        return web.Response(text=text, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", page)
    return application
