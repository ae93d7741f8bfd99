"""The FastAPI application: one object that knows items, store and rules, and the pages on it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, PackageLoader, StrictUndefined
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import HTMLResponse, Response

from concept_audit.council.study.items import ItemSet
from concept_audit.council.study.security import (
    COOKIE,
    RATE_LIMITS,
    FormToken,
    Limit,
    RateLimiter,
    SafetyLayer,
    browser_nonce,
)
from concept_audit.council.study.store import Store

__all__ = ["Signs", "Study", "StudyRules", "create_app", "render", "study_of"]

_LOG = logging.getLogger(__name__)
_STATIC = {"study.css": "text/css", "study.js": "text/javascript"}
_MESSAGES = {
    403: "This page was open for too long, or cookies are switched off. Your answers are kept: "
    "go back, reload the page and send the form again.",
    404: "There is nothing at this address. If you followed your personal link, check that it is "
    "complete.",
    405: "This address does not take such a request.",
    422: "The form was not complete. Go back and choose an answer.",
    429: "That was very fast. Please wait a moment, then go back and send the form again.",
    503: "The answer could not be stored. Please go back and send it again in a moment.",
}


@dataclass(frozen=True)
class StudyRules:
    """How a study runs."""

    admin_token: str
    session_items: int = 20  # items of a session, as on the authors' study page
    per_item: int = 3  # people per item before any repeats (CBX-Bench, section 3.1)
    https: bool = False  # cookies for encrypted connections only
    limits: Mapping[str, Limit] = field(default_factory=lambda: dict(RATE_LIMITS))

    def __post_init__(self) -> None:
        if len(self.admin_token) < 12:
            raise ValueError(
                f"admin_token must have at least 12 characters, got {len(self.admin_token)}: "
                "it opens the page with all answers. Leave it out to get a random one."
            )
        for name in ("session_items", "per_item"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")


@dataclass(frozen=True)
class Signs:
    """What the instructions have to explain because some explanation shows it."""

    negated: bool
    negative: bool


def _signs(items: ItemSet) -> Signs:
    bars = [
        bar
        for loaded in items.items.values()
        for shown in (loaded.item.a, loaded.item.b)
        for bar in shown.concepts
    ]
    return Signs(any(bar.negated for bar in bars), any(bar.weight < 0 for bar in bars))


class Study:
    """Items, store and rules of one running study."""

    def __init__(self, items: ItemSet, store: Store, rules: StudyRules) -> None:
        self.items = items
        self.store = store
        self.rules = rules
        self.image_of = {key: loaded.image.key for key, loaded in items.items.items()}
        self.signs = _signs(items)
        self.limiter = RateLimiter(rules.limits)
        self.forms = FormToken(store.secret)

    def check_form(self, request: Request, token: str) -> None:
        """Refuse a form that our page did not give to this browser."""
        if not self.forms.accepts(request, token):
            raise HTTPException(403)

    def check_rate(self, kind: str, sender: str) -> None:
        """Refuse what comes too often."""
        wait = self.limiter.wait(kind, sender)
        if wait:
            raise HTTPException(429, headers={"Retry-After": str(int(wait) + 1)})


def create_app(items: ItemSet, store: Store, rules: StudyRules) -> FastAPI:
    """Build the application.

    Parameters
    ----------
    items : from `load_items`
    store : where answers go
    rules : session length, people per item, admin token, rate limits

    Returns
    -------
    An ASGI application; `uvicorn.run(app)` serves it.
    """
    from concept_audit.council.study.admin import router as admin_pages
    from concept_audit.council.study.pages import router as participant_pages

    app = FastAPI(title="study", docs_url=None, redoc_url=None, openapi_url=None)
    study = Study(items, store, rules)
    app.state.study = study
    app.include_router(participant_pages)
    app.include_router(admin_pages)
    app.add_middleware(SafetyLayer, limiter=study.limiter, https=rules.https)
    app.add_exception_handler(StarletteHTTPException, _failed)
    app.add_exception_handler(RequestValidationError, _incomplete)
    app.add_exception_handler(SQLAlchemyError, _not_stored)
    return app


def study_of(request: Request) -> Study:
    """Study that this request belongs to."""
    study: Study = request.app.state.study
    return study


@lru_cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("concept_audit.council.study", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["static"] = {name: static_address(name) for name in _STATIC}
    return environment


@lru_cache
def static_file(name: str) -> tuple[bytes, str] | None:
    """Content and media type of a file that belongs to the pages; None for any other name."""
    if name not in _STATIC:
        return None
    content = files("concept_audit.council.study").joinpath("static", name).read_bytes()
    return content, _STATIC[name]


def static_address(name: str) -> str:
    """Address that changes with the content, so that browsers may keep it for ever."""
    content = static_file(name)
    if content is None:
        raise ValueError(f"name must be one of {', '.join(_STATIC)}, got {name!r}.")
    return f"/static/{name}?v={hashlib.sha256(content[0]).hexdigest()[:12]}"


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Render a page with its form token, and give a new browser its cookie."""
    study = study_of(request)
    known = browser_nonce(request)
    nonce = known or FormToken.new_nonce()
    html = (
        _environment()
        .get_template(template)
        .render(text=study.items.text, form_token=study.forms.of(nonce), **values)
    )
    reply = HTMLResponse(html, status_code=status)
    if known is None:
        # Lax, not Strict: a resume link in a mail must bring the cookie along.
        reply.set_cookie(
            COOKIE,
            nonce,
            max_age=180 * 86400,
            httponly=True,
            samesite="lax",
            secure=study.rules.https,
        )
    return reply


def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    reply = render(
        request,
        "message.html.j2",
        status=error.status_code,
        heading="Not possible",
        message=_MESSAGES.get(error.status_code, "Something went wrong."),
    )
    reply.headers.update(error.headers or {})
    return reply


def _incomplete(request: Request, _error: Exception) -> Response:
    return render(
        request, "message.html.j2", status=422, heading="Not complete", message=_MESSAGES[422]
    )


def _not_stored(request: Request, error: Exception) -> Response:
    _LOG.error("%s %s: %s", request.method, request.scope["route"].path, type(error).__name__)
    return render(
        request, "message.html.j2", status=503, heading="Not stored", message=_MESSAGES[503]
    )
