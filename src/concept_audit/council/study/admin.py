"""Pages for the people who run the study: counts and export, never who said what."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Form, HTTPException, Request
from starlette.responses import RedirectResponse, Response

from concept_audit.council.alignment import consensus_table
from concept_audit.council.study.app import Study, render, study_of
from concept_audit.council.study.export import LabelExport, export_labels, label_lines
from concept_audit.council.study.security import address_of

__all__ = ["router"]

router = APIRouter(prefix="/admin")
_COOKIE = "concept_audit_study_admin"
_LASTS = 8 * 3600


def _same(given: str, wanted: str) -> bool:
    """Compare without telling by time how much agrees."""
    digests = [hashlib.sha256(text.encode()).digest() for text in (given, wanted)]
    return hmac.compare_digest(*digests)


def _pass(study: Study, until: int) -> str:
    """Signed cookie of an open admin page."""
    key = (study.store.secret + study.rules.admin_token).encode()
    return f"{until}.{hmac.new(key, b'admin:%d' % until, hashlib.sha256).hexdigest()}"


def _allowed(request: Request, study: Study) -> bool:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        _check_guesses(request, study)
        if _same(token, study.rules.admin_token):
            return True
        study.limiter.wait("admin", address_of(request.scope))
        return False
    cookie = request.cookies.get(_COOKIE, "")
    until, _, _ = cookie.partition(".")
    if not (until.isascii() and until.isdigit() and len(until) < 15 and int(until) > time.time()):
        return False
    return _same(cookie, _pass(study, int(until)))


def _check_guesses(request: Request, study: Study) -> None:
    """Refuse after too many wrong tokens, before the next one is looked at."""
    wait = study.limiter.wait("admin", address_of(request.scope), spend=False)
    if wait:
        raise HTTPException(429, headers={"Retry-After": str(int(wait) + 1)})


def _export(study: Study, *, incomplete: bool = False) -> LabelExport:
    return export_labels(
        study.items,
        study.store.answered(),
        per_item=study.rules.per_item,
        incomplete=incomplete,
    )


@router.get("")
def overview(request: Request) -> Response:
    """Show counts, or ask for the token."""
    study = study_of(request)
    if not _allowed(request, study):
        return render(request, "admin_login.html.j2", wrong=False)
    complete = _export(study)
    some = _export(study, incomplete=True)
    people = Counter(len(row["answers"]) for row in some.rows)
    people[0] = len(study.items) - len(some.rows)
    return render(
        request,
        "admin.html.j2",
        counts=study.store.counts(),
        people=[(n, people[n]) for n in range(study.rules.per_item + 1)],
        n_items=len(study.items),
        per_item=study.rules.per_item,
        export=complete,
        table=consensus_table(complete.rows) if complete.rows else None,
        comments=complete.comments,
    )


@router.post("")
def log_in(
    request: Request,
    form_token: Annotated[str, Form()] = "",
    admin_token: Annotated[str, Form()] = "",
) -> Response:
    """Open the page for eight hours to whoever knows the token."""
    study = study_of(request)
    study.check_form(request, form_token)
    _check_guesses(request, study)
    if not _same(admin_token.strip(), study.rules.admin_token):
        study.limiter.wait("admin", address_of(request.scope))
        return render(request, "admin_login.html.j2", status=403, wrong=True)
    reply = RedirectResponse("/admin", status_code=303)
    reply.set_cookie(
        _COOKIE,
        _pass(study, int(time.time()) + _LASTS),
        max_age=_LASTS,
        path="/admin",
        httponly=True,
        samesite="strict",
        secure=study.rules.https,
    )
    return reply


@router.post("/leave")
def log_out(request: Request, form_token: Annotated[str, Form()] = "") -> Response:
    """Close the page."""
    study_of(request).check_form(request, form_token)
    reply = RedirectResponse("/admin", status_code=303)
    reply.delete_cookie(_COOKIE, path="/admin")
    return reply


@router.get("/{name}.jsonl")
def download(request: Request, name: str) -> Response:
    """Labels (complete items), all labels so far, or comments."""
    study = study_of(request)
    if name not in ("labels", "labels_so_far", "comments"):
        raise HTTPException(404)
    if not _allowed(request, study):
        return render(request, "admin_login.html.j2", status=403, wrong=False)
    export = _export(study, incomplete=name == "labels_so_far")
    return Response(
        label_lines(export.comments if name == "comments" else export.rows),
        media_type="application/jsonl",
        headers={"Content-Disposition": f'attachment; filename="{name}.jsonl"'},
    )
