"""Errors of the admin API as problem details (RFC 9457)."""

from http import HTTPStatus

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from prerender.admin.models import Problem
from prerender.admin.reasons import in_words
from prerender.errors import NotRenderable, PrerenderError, StoreError

log = structlog.get_logger(__name__)


def problem(status: int, detail: str) -> web.Response:
    """An error response with ``detail``."""
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail)
    return web.json_response(body, status=status, content_type="application/problem+json")


@web.middleware
async def as_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns exceptions into problem details, never a stack trace."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        response = problem(error.status, error.text or error.reason)
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
        return response
    except ValueError as error:
        return problem(400, str(error))
    except NotRenderable as error:
        return problem(409, f"not a page: {error}")
    except StoreError as error:
        return problem(503, str(error))
    except PrerenderError as error:
        return problem(error.status, in_words(error.code, error.reason))
    except Exception:
        log.exception("admin_request_failed", path=request.path)
        return problem(500, PrerenderError.public)
