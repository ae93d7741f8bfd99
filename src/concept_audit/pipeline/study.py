"""`concept-audit study`: the page on which people compare explanations, and the labels it gives."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from concept_audit.council.study.app import StudyRules, create_app
from concept_audit.council.study.export import export_labels, write_labels
from concept_audit.council.study.items import ItemSet, ItemSetError, load_items
from concept_audit.council.study.security import RATE_LIMITS
from concept_audit.council.study.store import Store

__all__ = ["main"]

ADMIN_TOKEN_VARIABLE = "CONCEPT_AUDIT_STUDY_ADMIN_TOKEN"
_USAGE = """\
concept-audit study demo   items=FOLDER
concept-audit study check  items=FOLDER
concept-audit study serve  items=FOLDER [db=sqlite:///study.db] [host=127.0.0.1] [port=8000]
                           [admin_token=...] [session_items=20] [per_item=3] [hold_minutes=60]
                           [https=false] [proxy=ADDRESS] [rate_limits=true]
concept-audit study export items=FOLDER [db=sqlite:///study.db] [out=labels.jsonl]
                           [comments=FILE] [per_item=3] [incomplete=false]

demo    draws a small set of items to try the page with
check   reads an item folder (items.jsonl, images, perhaps study.json) and reports every fault
serve   serves the page; answers go to the database as they are given. The admin token is read from
        admin_token or the variable CONCEPT_AUDIT_STUDY_ADMIN_TOKEN, else a random one is printed.
        On the internet put a server with TLS before it and say https=true proxy=ITS_ADDRESS.
        rate_limits=false is for load tests.
export  writes the labels, one comparison a line, sides undone, as the alignment reads them
"""
_DEFAULTS: dict[str, dict[str, str]] = {
    "demo": {"items": ""},
    "check": {"items": ""},
    "serve": {
        "items": "",
        "db": "sqlite:///study.db",
        "host": "127.0.0.1",
        "port": "8000",
        "admin_token": "",
        "session_items": "20",
        "per_item": "3",
        "hold_minutes": "60",
        "https": "false",
        "proxy": "",
        "rate_limits": "true",
    },
    "export": {
        "items": "",
        "db": "sqlite:///study.db",
        "out": "labels.jsonl",
        "comments": "",
        "per_item": "3",
        "incomplete": "false",
    },
}


def _arguments(verb: str, argv: Sequence[str]) -> dict[str, str]:
    values = dict(_DEFAULTS[verb])
    for argument in argv:
        name, equals, value = argument.partition("=")
        if not equals or name not in values:
            raise ValueError(
                f"Cannot read {argument!r}: `study {verb}` takes "
                f"{', '.join(f'{known}=...' for known in values)}."
            )
        values[name] = value
    if not values["items"]:
        raise ValueError(f"Say where the items are: concept-audit study {verb} items=FOLDER.")
    return values


def _whole(values: Mapping[str, str], name: str) -> int:
    text = values[name]
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} must be a whole number, got {text!r}.")
    return int(text)


def _switch(values: Mapping[str, str], name: str) -> bool:
    text = values[name].lower()
    if text not in ("true", "false"):
        raise ValueError(f"{name} must be true or false, got {values[name]!r}.")
    return text == "true"


def _about(items: ItemSet) -> str:
    models = {loaded.item.a.model for loaded in items.items.values()} | {
        loaded.item.b.model for loaded in items.items.values()
    }
    return f"{len(items)} items, {len(items.images)} images, {len(models)} models"


def _demo(values: Mapping[str, str]) -> int:
    from concept_audit.council.study.demo import write_demo

    path = write_demo(values["items"])
    print(f"{_about(load_items(path.parent))} in {path.parent}")
    print(f"Serve it: concept-audit study serve items={path.parent}")
    return 0


def _check(values: Mapping[str, str]) -> int:
    print(f"{_about(load_items(values['items']))}: no fault")
    return 0


def _serve(values: Mapping[str, str]) -> int:
    import uvicorn

    items = load_items(values["items"])
    given = values["admin_token"] or os.environ.get(ADMIN_TOKEN_VARIABLE, "")
    rules = StudyRules(
        admin_token=given or secrets.token_urlsafe(18),
        session_items=_whole(values, "session_items"),
        per_item=_whole(values, "per_item"),
        https=_switch(values, "https"),
        limits=RATE_LIMITS if _switch(values, "rate_limits") else {},
    )
    host, port, proxy = values["host"], _whole(values, "port"), values["proxy"]
    store = Store(values["db"], hold_seconds=60.0 * _whole(values, "hold_minutes"))
    try:
        print(f"{_about(items)}; answers go to {_without_password(values['db'])}")
        print(f"Participants: http://{host}:{port}/    Administration: http://{host}:{port}/admin")
        if not given:
            print(f"Admin token: {rules.admin_token}")
        if host not in ("127.0.0.1", "::1", "localhost") and not rules.https:
            print("Other machines can reach this page without encryption; see https= and proxy=.")
        sys.stdout.flush()
        # No access log: it would hold addresses of people and their personal links.
        uvicorn.run(
            create_app(items, store, rules),
            host=host,
            port=port,
            access_log=False,
            log_level="warning",
            server_header=False,
            proxy_headers=bool(proxy),
            forwarded_allow_ips=proxy or None,
        )
    finally:
        store.close()
    return 0


def _without_password(url: str) -> str:
    from sqlalchemy.engine import make_url

    return make_url(url).render_as_string(hide_password=True)


def _export(values: Mapping[str, str]) -> int:
    items = load_items(values["items"])
    database = values["db"]
    if (
        database.startswith("sqlite:///")
        and not Path(database.removeprefix("sqlite:///")).is_file()
    ):
        raise FileNotFoundError(
            f"db: no file {database.removeprefix('sqlite:///')}. "
            "`concept-audit study serve` makes it; name the one it used."
        )
    store = Store(database)
    try:
        answered = store.answered()
    finally:
        store.close()
    export = export_labels(
        items,
        answered,
        per_item=_whole(values, "per_item"),
        incomplete=_switch(values, "incomplete"),
    )
    write_labels(values["out"], export.rows)
    complete = export.n_items - export.n_incomplete
    print(f"{len(export.rows)} labelled comparisons in {values['out']}")
    print(
        f"{complete} of {export.n_items} items have {values['per_item']} answers; "
        f"{export.n_surplus} answers beyond that and {export.n_foreign} to other items left out"
    )
    if values["comments"]:
        write_labels(values["comments"], export.comments)
        print(f"{len(export.comments)} comments in {values['comments']}")
    return 0


_VERBS: dict[str, Callable[[Mapping[str, str]], int]] = {
    "demo": _demo,
    "check": _check,
    "serve": _serve,
    "export": _export,
}


def main(argv: Sequence[str]) -> int:
    """Run the command.

    Parameters
    ----------
    argv : arguments after ``study``, for example ``["serve", "items=outputs/study"]``

    Returns
    -------
    0 when done, 1 when the items have faults, 2 when the arguments make no sense.
    """
    if not argv or argv[0] in ("-h", "--help"):
        print(_USAGE)
        return 0 if argv else 2
    if argv[0] not in _VERBS:
        print(f"concept-audit study: unknown action {argv[0]!r}.\n\n{_USAGE}", file=sys.stderr)
        return 2
    if any(argument in ("-h", "--help") for argument in argv[1:]):
        print(_USAGE)
        return 0
    try:
        return _VERBS[argv[0]](_arguments(argv[0], argv[1:]))
    except ItemSetError as error:
        print(error, file=sys.stderr)
        return 1
    except (ValueError, FileNotFoundError) as error:
        print(f"concept-audit study {argv[0]}: {error}", file=sys.stderr)
        return 2
