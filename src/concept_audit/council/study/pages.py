"""Pages for participants: consent, instructions, items, end."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, HTTPException, Request
from starlette.responses import RedirectResponse, Response

from concept_audit.council.scoring import ANSWERS
from concept_audit.council.study.app import render, static_file, study_of
from concept_audit.council.study.items import LoadedItem, ShownExplanation
from concept_audit.council.study.security import address_of, browser_nonce
from concept_audit.council.study.store import Session, Showing

__all__ = ["router"]

router = APIRouter()
_TOKEN = re.compile(r"[A-Za-z0-9_-]{20,40}")
_KEY = re.compile(r"[0-9a-f]{32}")
MAX_COMMENT = 1000
_MINUTES = (0.3, 0.5)  # per item; the authors' page says six to ten for twenty


@dataclass(frozen=True)
class _View:
    """What a page may know of an item: no model, no identity of the image."""

    key: str
    image: str
    width: int
    height: int
    class_name: str
    left: ShownExplanation
    right: ShownExplanation


def _view(loaded: LoadedItem, swapped: bool) -> _View:
    item, image = loaded.item, loaded.image
    left, right = (item.b, item.a) if swapped else (item.a, item.b)
    return _View(
        loaded.key, f"/images/{image.key}", image.width, image.height, item.class_name, left, right
    )


def _session(request: Request, token: str) -> Session:
    session = study_of(request).store.session(token) if _TOKEN.fullmatch(token) else None
    if session is None:
        raise HTTPException(404)
    return session


def _go(address: str) -> Response:
    return RedirectResponse(address, status_code=303)


@router.get("/")
def consent(request: Request) -> Response:
    """Say what the study is and ask for consent."""
    return _consent_page(request)


def _consent_page(request: Request, *, missing: bool = False) -> Response:
    study = study_of(request)
    n_items = min(study.rules.session_items, len(study.items))
    quick = max(1, round(_MINUTES[0] * n_items))
    return render(
        request,
        "consent.html.j2",
        status=422 if missing else 200,
        n_items=n_items,
        minutes=f"{quick} to {max(quick + 1, round(_MINUTES[1] * n_items))}",
        missing=missing,
    )


@router.post("/start")
def start(
    request: Request,
    form_token: Annotated[str, Form()] = "",
    agreed: Annotated[str, Form()] = "",
) -> Response:
    """Open a session for a person who agreed."""
    study = study_of(request)
    study.check_form(request, form_token)
    if agreed != "yes":
        return _consent_page(request, missing=True)
    study.check_rate("start", address_of(request.scope))
    nonce = browser_nonce(request)
    assert nonce is not None  # check_form has seen it
    token = study.store.start(nonce, study.rules.session_items, list(study.items.items))
    if token is None:
        return render(
            request,
            "message.html.j2",
            heading="You have seen everything",
            message="You have already compared every pair of this study. Thank you very much.",
        )
    return _go(f"/s/{token}/instructions")


@router.get("/s/{token}/instructions")
def instructions(request: Request, token: str) -> Response:
    """Explain the four criteria and give the personal link."""
    session = _session(request, token)
    return render(
        request,
        "instructions.html.j2",
        token=token,
        session=session,
        signs=study_of(request).signs,
        link=f"{request.base_url}s/{token}",
    )


@router.get("/s/{token}")
def resume(request: Request, token: str) -> Response:
    """Go to the first item without an answer, or to the end."""
    session = _session(request, token)
    if session.n_answered == 0 and not study_of(request).store.showings(session):
        return _go(f"/s/{token}/instructions")
    return _go(f"/s/{token}/next")


@router.get("/s/{token}/next")
def next_item(request: Request, token: str) -> Response:
    """Show the first item without an answer; it is drawn here and stays this person's."""
    study, session = study_of(request), _session(request, token)
    showing = study.store.next_showing(session, study.image_of, per_item=study.rules.per_item)
    if showing is None:
        return _go(f"/s/{token}/end")
    return _item_page(request, token, session, showing)


@router.get("/s/{token}/item/{position}")
def earlier_item(request: Request, token: str, position: int) -> Response:
    """Show an item again; its answer may be changed."""
    study, session = study_of(request), _session(request, token)
    for showing in study.store.showings(session):
        if showing.position == position and showing.item_key in study.items.items:
            return _item_page(request, token, session, showing)
    raise HTTPException(404)


def _item_page(
    request: Request, token: str, session: Session, showing: Showing, *, missing: bool = False
) -> Response:
    return render(
        request,
        "item.html.j2",
        status=422 if missing else 200,
        token=token,
        session=session,
        showing=showing,
        view=_view(study_of(request).items.items[showing.item_key], showing.swapped),
        missing=missing,
        max_comment=MAX_COMMENT,
    )


@router.post("/s/{token}/item/{position}")
def answer(
    request: Request,
    token: str,
    position: int,
    form_token: Annotated[str, Form()] = "",
    item: Annotated[str, Form()] = "",
    choice: Annotated[str, Form()] = "",
    comment: Annotated[str, Form()] = "",
) -> Response:
    """Keep an answer, then go on."""
    study, session = study_of(request), _session(request, token)
    study.check_form(request, form_token)
    study.check_rate("answer", str(session.id))
    if choice not in ANSWERS:
        return _unanswered(request, token, session, position)
    note = comment.strip()[:MAX_COMMENT] or None
    # Nothing is kept if the item went to someone else while this page lay open; the next page
    # then shows what is due now.
    if _KEY.fullmatch(item):
        study.store.answer(session, position, item, choice, note)
    return _go(f"/s/{token}/next")


def _unanswered(request: Request, token: str, session: Session, position: int) -> Response:
    """Same item again, with a word on what is missing."""
    study = study_of(request)
    for showing in study.store.showings(session):
        if showing.position == position and showing.item_key in study.items.items:
            return _item_page(request, token, session, showing, missing=True)
    raise HTTPException(404)


@router.get("/s/{token}/end")
def end(request: Request, token: str) -> Response:
    """Thank the person; until everything is answered there is no end."""
    session = _session(request, token)
    if not session.finished:
        return _go(f"/s/{token}/next")
    return render(request, "end.html.j2", token=token, session=session)


@router.get("/s/{token}/withdraw")
def ask_withdraw(request: Request, token: str) -> Response:
    """Ask whether all answers shall go."""
    return render(request, "withdraw.html.j2", token=token, session=_session(request, token))


@router.post("/s/{token}/withdraw")
def withdraw(request: Request, token: str, form_token: Annotated[str, Form()] = "") -> Response:
    """Delete the session with all its answers."""
    study, session = study_of(request), _session(request, token)
    study.check_form(request, form_token)
    study.store.withdraw(session)
    return render(
        request,
        "message.html.j2",
        heading="Your answers are deleted",
        message="Nothing of your session is left. Thank you for your time.",
    )


@router.get("/images/{key}")
def image(request: Request, key: str) -> Response:
    """Deliver an image of the set: looked up by content, never by a path from outside."""
    stored = study_of(request).items.images.get(key)
    if stored is None or not stored.path.is_file():
        raise HTTPException(404)
    content = stored.path.read_bytes()
    if hashlib.sha256(content).hexdigest() != stored.sha256:  # replaced since the start
        raise HTTPException(404)
    return Response(
        content,
        media_type=stored.media_type,
        headers={"Cache-Control": "private, max-age=86400, immutable"},
    )


@router.get("/static/{name}")
def static(name: str) -> Response:
    """Deliver style and script of the pages."""
    found = static_file(name)
    if found is None:
        raise HTTPException(404)
    content, media_type = found
    return Response(
        content, media_type=media_type, headers={"Cache-Control": "public, max-age=31536000"}
    )


@router.get("/favicon.ico")
def favicon() -> Response:
    """Nothing; browsers ask."""
    return Response(status_code=204)
