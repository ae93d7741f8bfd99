"""The pages as a participant, a stranger and an attacker meet them."""

from __future__ import annotations

import json
import re

import pytest

from concept_audit.council.study.app import StudyRules
from concept_audit.council.study.security import RATE_LIMITS, Limit, RateLimiter, address_of
from council.study.participant import ADMIN, MODELS, Browser


def begin(app):
    browser = Browser(app)
    token = browser.start()
    browser.get(f"/s/{token}/next")
    return browser, token


def test_a_whole_session_without_scripts(make_study):
    app, _items, store = make_study(n_images=8)
    browser, token = begin(app)
    for position in range(1, 21):
        assert f"Comparison <strong>{position}</strong> of 20" in browser.page.text
        browser.answer("AB"[position % 2], comment="  fine  " if position == 3 else "")
    assert str(browser.page.url).endswith(f"/s/{token}/end")
    assert "Thank you" in browser.page.text
    answered = store.answered()
    assert len(answered) == 20
    assert [showing.comment for showing in answered].count("fine") == 1
    assert sum(showing.swapped for showing in answered) == 10


def test_consent_comes_first(make_study):
    app, _, store = make_study(n_images=1)
    browser = Browser(app)
    page = browser.get("/").text
    assert "agree to take part" in page
    assert "3 comparisons; most people need 1 to 2 minutes" in page
    reply = browser.client.post("/start", data={"form_token": browser.field("form_token")})
    assert reply.status_code == 422
    assert "please tick the box" in reply.text
    assert store.counts().sessions == 0


def test_the_four_criteria_and_the_link_are_on_the_instructions(make_study):
    app, _, _ = make_study(n_images=1)
    browser = Browser(app)
    token = browser.start()
    for words in ("Concept relevance", "Concept importance", "Coherence", "Prediction support"):
        assert words in browser.page.text
    assert f'value="http://testserver/s/{token}"' in browser.page.text


def test_resume_by_link_in_another_browser(make_study):
    app, _, store = make_study(n_images=2)
    browser, token = begin(app)
    browser.answer("A")
    shown = browser.field("item")
    other = Browser(app)
    other.get(f"/s/{token}")
    assert other.field("item") == shown
    assert "Comparison <strong>2</strong>" in other.page.text
    other.answer("equally_bad")
    assert [showing.answer for showing in store.answered()] == ["A", "equally_bad"]


@pytest.mark.parametrize("token", ["x", "A" * 24, "A" * 200, "..%2F..%2Fetc", "' OR 1=1 --"])
def test_a_link_that_is_none_opens_nothing(make_study, token):
    app, _, _ = make_study(n_images=1)
    browser = Browser(app)
    for page in ("", "/next", "/instructions", "/end", "/withdraw", "/item/1"):
        assert browser.get(f"/s/{token}{page}").status_code == 404


def test_an_answer_can_be_changed_and_a_missing_one_is_asked_for(make_study):
    app, _, store = make_study(n_images=2)
    browser, token = begin(app)
    browser.answer("")
    assert browser.page.status_code == 422
    assert "choose one of the four answers" in browser.page.text
    browser.answer("A")
    browser.get(f"/s/{token}/item/1")
    assert re.search(r'value="A" required checked', browser.page.text)
    browser.answer("equally_good")
    assert [showing.answer for showing in store.answered()] == ["equally_good"]
    assert "Comparison <strong>2</strong>" in browser.page.text
    assert browser.get(f"/s/{token}/item/9").status_code == 404
    assert "Comparison" in browser.get(f"/s/{token}/end").text  # no end before the last answer


def test_the_models_stay_anonymous(make_study):
    app, _, _ = make_study(n_images=3)
    browser, _ = begin(app)
    while "data-answers" in browser.page.text:
        assert not any(name in browser.page.text for name in (*MODELS, "image-", "images/0.png"))
        browser.answer("A")


def test_a_withdrawn_session_leaves_nothing(make_study):
    app, _, store = make_study(n_images=2)
    browser, token = begin(app)
    browser.answer("A")
    browser.get(f"/s/{token}/withdraw")
    assert "answered 1 of 6" in browser.page.text
    data = {"form_token": browser.field("form_token")}
    assert "deleted" in browser.client.post(f"/s/{token}/withdraw", data=data).text
    assert store.counts().sessions == 0
    assert store.answered() == []
    assert browser.get(f"/s/{token}").status_code == 404


def test_who_has_seen_everything_is_told_so(make_study):
    app, _, _ = make_study(n_images=1)
    browser, _ = begin(app)
    while "data-answers" in browser.page.text:
        browser.answer("B")
    assert browser.start() is None
    assert "seen everything" in browser.page.text


SCRIPT = '<script>alert("x")</script>'


def test_scripts_in_names_and_comments_are_shown_as_text(make_study):
    def edit(text):
        text = text.replace('"Cat"', json.dumps(SCRIPT), 2)  # class, and the prediction of A
        text = text.replace('"Cat"', '"{{ 7*7 }}"').replace('"weight": 0.2', '"weight": -0.2')
        return text.replace('"fur"', json.dumps("'\"><img src=x onerror=y>"))

    app, _, _ = make_study(n_images=1, edit=lambda text: edit(text.splitlines()[0]))
    browser, token = begin(app)
    assert "<script>alert" not in browser.page.text
    assert "&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;" in browser.page.text
    assert "<img src=x" not in browser.page.text
    assert "{{ 7*7 }}" in browser.page.text
    assert 'class="bar against"' in browser.page.text
    browser.answer("A", comment=SCRIPT)
    browser.get(f"/s/{token}/item/1")
    assert "<script>alert" not in browser.page.text
    log_in(browser)
    browser.get("/admin")
    assert "<script>alert" not in browser.page.text


def test_signs_are_explained_where_they_occur(make_study):
    for edit, expected in (
        (lambda text: text, (False, False)),
        (lambda text: text.replace('"negated": false', '"negated": true', 1), (True, False)),
        (lambda text: text.replace('"weight": 0.2', '"weight": -0.2', 1), (False, True)),
    ):
        app, _, _ = make_study(n_images=1, edit=edit)
        browser = Browser(app)
        browser.start()
        words = ("relied on its absence", "counted against the class")
        assert tuple(word in browser.page.text for word in words) == expected


def test_an_explanation_without_concepts_says_so(make_study):
    def edit(text):
        row = json.loads(text.splitlines()[0])
        row["b"]["concepts"] = []
        return json.dumps(row)

    app, _, _ = make_study(n_images=1, edit=edit)
    browser, _ = begin(app)
    assert browser.page.text.count("No concept reached a weight of 0.010.") == 1


def test_images_are_found_by_content_only(make_study):
    app, items, _store = make_study(n_images=2)
    browser, _ = begin(app)
    address = re.search(r'src="(/images/[0-9a-f]{32})"', browser.page.text).group(1)
    reply = browser.get(address)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "image/png"
    for path in (
        "/images/0.png",
        "/images/../items.jsonl",
        "/images/..%2Fitems.jsonl",
        "/images/" + "0" * 32,
        "/images/%2e%2e/%2e%2e/etc/passwd",
        "/images//etc/passwd",
        "/items.jsonl",
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/app.py",
        "/0.db",
    ):
        assert browser.get(path).status_code == 404, path
    # A file that is replaced under a running study is not shown.
    image = next(iter(items.images.values()))
    image.path.write_text("something else")
    assert browser.get(f"/images/{image.key}").status_code == 404


def test_a_form_needs_the_token_of_its_own_browser(make_study):
    app, _, store = make_study(n_images=2)
    browser, token = begin(app)
    good, item = browser.field("form_token"), browser.field("item")
    address = f"/s/{token}/item/1"
    stranger = Browser(app)
    stranger.get("/")
    attempts = [
        (browser, {"item": item, "choice": "A"}, {}),
        (browser, {"item": item, "choice": "A", "form_token": "0" * 64}, {}),
        (browser, {"item": item, "choice": "A", "form_token": "é"}, {}),
        (stranger, {"item": item, "choice": "A", "form_token": good}, {}),
        (Browser(app), {"item": item, "choice": "A", "form_token": good}, {}),
        (
            browser,
            {"item": item, "choice": "A", "form_token": good},
            {"sec-fetch-site": "cross-site"},
        ),
    ]
    for who, data, headers in attempts:
        reply = who.client.post(address, data=data, headers=headers)
        assert reply.status_code == 403
        assert "open for too long" in reply.text
    for other in ("/start", f"/s/{token}/withdraw", "/admin", "/admin/leave"):
        assert browser.client.post(other, data={"agreed": "yes"}).status_code == 403
    assert store.answered() == []
    assert browser.answer("A").status_code == 200


def test_an_answer_to_another_item_is_not_kept(make_study):
    app, items, store = make_study(n_images=2)
    browser, token = begin(app)
    wrong = next(key for key in items.items if key != browser.field("item"))
    for key in (wrong, "", "x" * 5000):
        data = {"form_token": browser.field("form_token"), "item": key, "choice": "A"}
        browser.client.post(f"/s/{token}/item/1", data=data)
    assert store.answered() == []


def test_every_reply_carries_the_headers(make_study):
    app, _, _ = make_study(n_images=1, https=True)
    browser = Browser(app, base_url="https://testserver")
    for path in ("/", "/nothing", "/static/study.css", "/admin", "/favicon.ico"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["strict-transport-security"]
        assert headers["cache-control"]
    cookie = Browser(app, base_url="https://testserver").get("/").headers["set-cookie"].lower()
    assert all(word in cookie for word in ("httponly", "samesite=lax", "secure"))


def test_no_page_has_inline_style_or_script(make_study):
    app, _, _ = make_study(n_images=2)
    browser, token = begin(app)
    log_in(browser)
    for path in (
        "/",
        f"/s/{token}/instructions",
        f"/s/{token}/next",
        f"/s/{token}/withdraw",
        "/admin",
    ):
        page = browser.get(path).text
        assert not re.search(r"<style|\sstyle=|<script(?! src)|\son\w+=", page)


def test_answers_are_limited_per_session(make_study):
    limits = {"answer": Limit(3, 60)}
    app, _, store = make_study(n_images=8, limits=limits)
    browser, _token = begin(app)
    for _ in range(3):
        assert browser.answer("A").status_code == 200
    reply = browser.answer("A")
    assert reply.status_code == 429
    assert int(reply.headers["retry-after"]) >= 1
    assert "wait a moment" in reply.text
    assert len(store.answered()) == 3


def test_sessions_and_requests_are_limited_per_address(make_study):
    app, _, _ = make_study(n_images=8, limits={"start": Limit(1, 60), "request": Limit(12, 60)})
    browser = Browser(app)
    assert browser.start()
    assert browser.start() is None
    assert browser.page.status_code == 429
    codes = [browser.get("/").status_code for _ in range(12)]
    assert codes[-1] == 429
    assert "content-security-policy" in browser.page.headers


def test_a_large_form_is_refused(make_study):
    app, _, store = make_study(n_images=1)
    browser, _ = begin(app)
    assert browser.answer("A", comment="x" * 40_000).status_code == 413
    assert store.answered() == []
    browser.get(str(browser.page.url).replace("item/1", "next"))
    browser.answer("A", comment="y" * 5000)
    assert len(store.answered()[0].comment) == 1000


def test_the_limiter_fills_up_again_and_forgets():
    now = [0.0]
    limiter = RateLimiter({"x": Limit(2, 10)}, clock=lambda: now[0])
    assert [limiter.wait("x", "me") for _ in range(2)] == [0.0, 0.0]
    assert limiter.wait("x", "me") == pytest.approx(5.0)
    assert limiter.wait("x", "you") == 0.0
    assert limiter.wait("unlimited", "me") == 0.0
    now[0] += 5
    assert limiter.wait("x", "me", spend=False) == 0.0
    assert limiter.wait("x", "me") == 0.0
    limiter._MOST = 4
    for number in range(20):
        limiter.wait("x", f"sender {number}")
    assert len(limiter._buckets) <= 4


def test_one_network_of_the_new_internet_is_one_sender():
    assert address_of({"client": ("2001:db8::1", 1)}) == address_of({"client": ("2001:db8::2", 1)})
    assert address_of({"client": ("10.0.0.1", 1)}) != address_of({"client": ("10.0.0.2", 1)})
    assert address_of({"client": ("testclient", 1)}) == "testclient"
    assert address_of({"client": None}) == "unknown"


def log_in(browser, token=ADMIN):
    browser.get("/admin")
    data = {"form_token": browser.field("form_token"), "admin_token": token}
    browser.page = browser.client.post("/admin", data=data)
    return browser.page


def test_the_admin_page_needs_the_token(make_study):
    app, _, _ = make_study(n_images=2)
    browser, token = begin(app)
    browser.answer("A", comment="a remark")
    stranger = Browser(app)
    assert "Admin token" in stranger.get("/admin").text
    assert "a remark" not in stranger.page.text
    assert stranger.get("/admin/labels.jsonl").status_code == 403
    assert log_in(stranger, "wrong").status_code == 403
    assert "not the token" in stranger.page.text
    for forged in ("99999999999.0000", "x", "99999999999", "1.2.3"):
        stranger.client.cookies.set("concept_audit_study_admin", forged, path="/admin")
        assert stranger.get("/admin/labels.jsonl").status_code == 403
    keeper = Browser(app)
    page = log_in(keeper).text
    assert "1</b> of 18 answers" in page
    assert "a remark" in page
    assert token not in page
    assert keeper.get("/admin/nothing.jsonl").status_code == 404
    keeper.get("/admin")
    keeper.client.post("/admin/leave", data={"form_token": keeper.field("form_token")})
    assert "Admin token" in keeper.get("/admin").text


def test_the_export_of_the_admin_page_names_nobody(make_study):
    app, _, _ = make_study(n_images=1)
    for _ in range(3):
        browser, _token = begin(app)
        while "data-answers" in browser.page.text:
            browser.answer("equally_bad", comment="hm")
    bearer = {"Authorization": f"Bearer {ADMIN}"}
    reader = Browser(app)
    labels = reader.get("/admin/labels.jsonl", headers=bearer)
    assert labels.text.count("\n") == 3
    assert '"answers": ["equally_bad", "equally_bad", "equally_bad"]' in labels.text
    assert "attachment" in labels.headers["content-disposition"]
    comments = reader.get("/admin/comments.jsonl", headers=bearer)
    assert comments.text.count('"comment": "hm"') == 9
    for text in (labels.text, comments.text):
        assert not re.search(r"session|person|time|_at", text)
    assert "Unanimous" in reader.get("/admin", headers=bearer).text


def test_guessing_the_admin_token_is_slow(make_study):
    app, _, _ = make_study(n_images=1)
    browser = Browser(app)
    codes = [
        browser.get("/admin/labels.jsonl", headers={"Authorization": f"Bearer {n}"}).status_code
        for n in range(12)
    ]
    assert codes[:10] == [403] * 10
    assert codes[10:] == [429] * 2
    assert log_in(browser).status_code == 429


def test_rules_are_checked():
    with pytest.raises(ValueError, match="at least 12 characters, got 5"):
        StudyRules(admin_token="short")
    with pytest.raises(ValueError, match="session_items must be at least 1, got 0"):
        StudyRules(admin_token=ADMIN, session_items=0)
    assert set(RATE_LIMITS) == {"request", "start", "answer", "admin"}


def test_a_store_that_fails_says_so_to_the_person(make_study, monkeypatch):
    from sqlalchemy.exc import OperationalError

    app, _, store = make_study(n_images=1)
    browser, _ = begin(app)

    def full(*_):
        raise OperationalError("UPDATE", {}, OSError("disk full"))

    monkeypatch.setattr(store, "answer", full)
    reply = browser.answer("A")
    assert reply.status_code == 503
    assert "could not be stored" in reply.text
    assert "UPDATE" not in reply.text


def test_no_address_of_the_program_tells_its_interface(make_study):
    app, _, _ = make_study(n_images=1)
    browser = Browser(app)
    for path in ("/docs", "/redoc", "/openapi.json"):
        assert browser.get(path).status_code == 404
    assert browser.client.post("/images/x").status_code == 405
    assert browser.get("/s/" + "A" * 24 + "/item/x").status_code in (404, 422)
