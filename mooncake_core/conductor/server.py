"""The HTTP application: routes, request ids, and errors in OpenAI's form whatever goes wrong."""

from __future__ import annotations

import logging
import math
import secrets

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from mooncake_core.conductor.admin import Admin
from mooncake_core.conductor.gateway import VISIT, Gateway, Parts, Visit
from mooncake_core.conductor.openai_api import ApiError
from mooncake_core.errors import RequestError

log = logging.getLogger(__name__)


def application(parts: Parts) -> web.Application:
    """Return the HTTP application with all endpoints."""
    app = web.Application(
        client_max_size=parts.config.max_body_bytes,
        middlewares=[_identified(parts), _explained(parts)],
    )
    app.add_routes([*Gateway(parts).routes(), *Admin(parts).routes()])
    return app


def _identified(parts: Parts) -> Middleware:
    """Return what gives a request an id, and tells it."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        visit = Visit(f"req-{secrets.token_hex(12)}", parts.clock())
        VISIT.set(visit)
        response = await handler(request)
        if not response.prepared:
            response.headers["x-request-id"] = visit.id
        return response

    return middleware


def _explained(parts: Parts) -> Middleware:
    """Return what turns errors into OpenAI's form, and counts how requests end."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_counted = request.path.startswith("/v1/") and request.method == "POST"
        outcome = "cancelled"
        if is_counted:
            parts.metrics.in_flight.inc()
        try:
            response = await _answered(request, handler)
            default = "ok" if response.status < 400 else str(response.status)
            outcome = VISIT.get().outcome or default
            return response
        finally:
            if is_counted:
                parts.metrics.in_flight.dec()
                endpoint = request.path if request.match_info.http_exception is None else "unknown"
                parts.metrics.requests.labels(endpoint, outcome).inc()

    return middleware


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return web.json_response(error.body(), status=error.status, headers=_retry_after(error))
    except RequestError as error:
        return web.json_response(ApiError(400, str(error)).body(), status=400)
    except web.RequestPayloadError as error:
        body = ApiError(400, f"the body cannot be read: {error}").body()
        return web.json_response(body, status=400)
    except web.HTTPException as error:
        message = _http_message(request, error)
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        body = ApiError(error.status, message).body()
        return web.json_response(body, status=error.status, headers=headers)
    except ConnectionResetError:
        raise
    except Exception:
        # A defect of ours must not take down the requests of others. It is logged in full.
        visit = VISIT.get()
        log.exception("request %s failed", visit.id)
        body = ApiError(500, f"internal error; see the log for {visit.id}").body()
        return web.json_response(body, status=500)


def _http_message(request: web.Request, error: web.HTTPException) -> str:
    if error.status == 404:
        return f"there is no {request.path} here"
    if error.status == 405:
        return f"{request.method} is not allowed on {request.path}"
    return error.reason


def _retry_after(error: ApiError) -> dict[str, str]:
    """Return the header that says when to come again, in whole seconds."""
    if error.retry_after_s is None:
        return {}
    return {"Retry-After": str(math.ceil(error.retry_after_s))}
