"""
CORS for browsers that report AI calls directly. It is off unless `server.cors_origins` names their origins.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from aiohttp import web

HEADERS = "authorization, content-type, content-encoding"
MAX_AGE_S = 600


class Cors:
    """
    The allowed origins, as patterns. A pattern must match the whole origin, in the same letter case. `*`
    matches any text.
    """

    def __init__(self, origins: tuple[str, ...] = ()) -> None:
        self._origins = origins

    def __bool__(self) -> bool:
        return bool(self._origins)

    def preflight_response(self, request: web.Request, methods: str) -> web.Response | None:
        """
        Return the answer to a preflight request. Return None for any other request, or if the origin is not
        allowed.
        """
        if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
            return None
        if not self._admits_origin(request):
            return None
        headers = {
            "Access-Control-Allow-Methods": methods,
            "Access-Control-Allow-Headers": HEADERS,
            "Access-Control-Max-Age": str(MAX_AGE_S),
        }
        return web.Response(status=204, headers=headers)

    async def on_prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add CORS headers to a response. The signal handler is registered only if origins are configured."""
        if self._admits_origin(request):
            response.headers["Access-Control-Allow-Origin"] = request.headers["Origin"]
            response.headers["Access-Control-Expose-Headers"] = "Tollhouse-Receipt, Retry-After"
            response.headers["Vary"] = "Origin"

    def _admits_origin(self, request: web.Request) -> bool:
        origin = request.headers.get("Origin", "")
        return bool(origin) and any(fnmatchcase(origin, allowed) for allowed in self._origins)
