"""What stands between the pages and strangers: headers, size limit, rate limits, form tokens."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = [
    "COOKIE",
    "RATE_LIMITS",
    "FormToken",
    "Limit",
    "RateLimiter",
    "SafetyLayer",
    "address_of",
    "browser_nonce",
    "came_from_elsewhere",
]

COOKIE = "concept_audit_study"
MAX_BODY_BYTES = 32_000
_NONCE = re.compile(r"[A-Za-z0-9_-]{22,64}")
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # A resume link must not travel to other sites.
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


@dataclass(frozen=True)
class Limit:
    """At most `count` events per `seconds`."""

    count: int
    seconds: float


# A whole class may sit behind one address, so the limits per address are wide.
RATE_LIMITS: Mapping[str, Limit] = {
    "request": Limit(3000, 60),  # per address
    "start": Limit(400, 3600),  # per address
    "answer": Limit(60, 60),  # per session
    "admin": Limit(10, 900),  # wrong tokens per address
}


class RateLimiter:
    """Token buckets in memory, one per kind of event and sender.

    Parameters
    ----------
    limits : kind of event -> limit; an absent kind is unlimited
    clock : seconds
    """

    _MOST = 50_000

    def __init__(
        self, limits: Mapping[str, Limit], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = dict(limits)
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}  # tokens, time

    def wait(self, kind: str, sender: str, *, spend: bool = True) -> float:
        """Seconds until the event is allowed; 0 means now, and then it is counted."""
        limit = self._limits.get(kind)
        if limit is None:
            return 0.0
        now, pace = self._clock(), limit.count / limit.seconds
        with self._lock:
            tokens, then = self._buckets.get((kind, sender), (float(limit.count), now))
            tokens = min(limit.count, tokens + (now - then) * pace)
            if tokens < 1:
                self._buckets[kind, sender] = (tokens, now)
                return (1 - tokens) / pace
            if len(self._buckets) >= self._MOST:
                self._forget(now)
            self._buckets[kind, sender] = (tokens - spend, now)
        return 0.0

    def _forget(self, now: float) -> None:
        """Drop buckets that are full again, then the oldest half if that is not enough."""
        for (kind, sender), (tokens, then) in list(self._buckets.items()):
            limit = self._limits[kind]
            if tokens + (now - then) * limit.count / limit.seconds >= limit.count:
                del self._buckets[kind, sender]
        if len(self._buckets) >= self._MOST:
            for key in sorted(self._buckets, key=lambda key: self._buckets[key][1])[
                : self._MOST // 2
            ]:
                del self._buckets[key]


def address_of(scope: Scope) -> str:
    """Sender's address; IPv6 by network, since one sender owns a whole /64."""
    host = (scope.get("client") or ("unknown", 0))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    if address.version == 6:
        return str(ipaddress.ip_network(f"{address}/64", strict=False))
    return str(address)


class SafetyLayer:
    """ASGI layer around the app: headers on every reply, body size, requests per address."""

    def __init__(self, app: ASGIApp, *, limiter: RateLimiter, https: bool = False) -> None:
        self._app = app
        self._limiter = limiter
        headers = dict(_HEADERS)
        if https:
            headers["strict-transport-security"] = "max-age=31536000"
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", []))
                names = {name.lower() for name, _ in given}
                if b"cache-control" not in names:
                    given.append((b"cache-control", b"no-store"))
                message = {**message, "headers": given + self._headers}
            await send(message)

        wait = self._limiter.wait("request", address_of(scope))
        if wait:
            reply = PlainTextResponse(
                "Too many requests. Please wait a moment and reload the page.\n",
                status_code=429,
                headers={"Retry-After": str(math.ceil(wait))},
            )
            await reply(scope, receive, send_with_headers)
            return
        if scope["method"] not in ("GET", "HEAD"):
            body = await _read_body(receive)
            if body is None:
                too_large = PlainTextResponse(
                    f"The form is larger than {MAX_BODY_BYTES} bytes. Shorten the comment.\n",
                    status_code=413,
                )
                await too_large(scope, receive, send_with_headers)
                return
            receive = _replay(body, receive)
        await self._app(scope, receive, send_with_headers)


async def _read_body(receive: Receive) -> bytes | None:
    """Whole body, or None when it is too large or the sender left."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return body


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hand out a body that has been read, then whatever comes next."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


def browser_nonce(request: Request) -> str | None:
    """Random text of this browser's cookie, or None without a well-formed one."""
    nonce = request.cookies.get(COOKIE, "")
    return nonce if _NONCE.fullmatch(nonce) else None


def came_from_elsewhere(request: Request) -> bool:
    """True if the browser says that another site sent this form."""
    return request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


class FormToken:
    """Proof that a form came from our own page: a keyed digest of the browser's cookie."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    @staticmethod
    def new_nonce() -> str:
        """Content of a new cookie."""
        return secrets.token_urlsafe(24)

    def of(self, nonce: str) -> str:
        """Token that a form of this browser carries."""
        return hmac.new(self._secret, b"form:" + nonce.encode(), hashlib.sha256).hexdigest()

    def accepts(self, request: Request, token: str) -> bool:
        """True for a form that our page gave to this browser."""
        nonce = browser_nonce(request)
        if nonce is None or came_from_elsewhere(request):
            return False
        return hmac.compare_digest(self.of(nonce).encode(), token.encode())
