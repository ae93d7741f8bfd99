"""The pages in a real browser: by keyboard, on a phone, in the dark, without scripts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from concept_audit.council.study.items import load_items
from concept_audit.council.study.store import Store
from council.study.participant import ADMIN, write_folder
from council.study.serving import Server

CHROMIUM = next(
    (path for path in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if path),
    None,
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium on this machine (apt install chromium)"
    ),
]
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
LONG = (
    "a remarkably long concept name withoutanyplacetobreakitanywhereinside of a hundred characters"
)


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    items = write_folder(folder / "items", 8)
    lines = (items / "items.jsonl").read_text().replace('"fur"', f'"{LONG}"')
    (items / "items.jsonl").write_text(lines)
    server = Server(items, folder / "study.db", folder / "log", admin_token=ADMIN)
    server.database = folder / "study.db"
    server.items = items
    yield server
    server.stop()


@pytest.fixture
def visit(chromium, served):
    """Open a page in a fresh browser profile; complaints of the browser fail the test."""
    contexts, complaints = [], []

    def open_page(**options):
        context = chromium.new_context(base_url=served.address, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto("/")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def answers(served):
    store = Store(f"sqlite:///{served.database}")
    try:
        return store.answered()
    finally:
        store.close()


def comparison(page, position):
    page.wait_for_selector(f"#where:has-text('Comparison {position} of')")
    page.wait_for_load_state()  # a key that comes before the page's script is lost


def start(page):
    page.check("input[name=agreed]")
    page.click("button[type=submit]")
    page.click("a.button")
    comparison(page, 1)


def test_a_whole_session_by_keyboard(visit, served):
    before = len(answers(served))
    page = visit(viewport={"width": 1366, "height": 768})
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "agreed"
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    page.wait_for_url("**/instructions")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Begin"
    page.keyboard.press("Enter")
    for position in range(1, 21):
        comparison(page, position)
        key = "1234"[position % 4]
        if position == 5:  # arrows move the choice, from either end and round it
            page.keyboard.press("ArrowRight")
            page.keyboard.press("ArrowRight")
            page.keyboard.press("ArrowLeft")
            page.keyboard.press("ArrowLeft")
            key = "4"
        elif position == 6:  # keys typed into the comment are text
            page.keyboard.press(key)
            page.focus("summary")
            page.keyboard.press("Enter")
            page.focus("textarea")
            page.keyboard.type("1 of 4")
            page.keyboard.press("Tab")
        else:
            page.keyboard.press(key)
        assert page.locator("input[name=choice]:checked").count() == 1
        value = page.locator("input[name=choice]:checked").get_attribute("value")
        assert value == ("A", "B", "equally_good", "equally_bad")["1234".index(key)]
        if position == 1:
            outline = "getComputedStyle(document.activeElement.closest('label')).outlineWidth"
            assert page.evaluate(outline) == "3px"  # the focus can be seen
            # Nothing to scroll on a laptop: the button is on the screen.
            box = page.locator("button[type=submit]").bounding_box()
            assert box["y"] + box["height"] <= 768
        page.keyboard.press("Enter")
    page.wait_for_url("**/end")
    given = answers(served)[before:]
    assert len(given) == 20
    assert [showing.answer for showing in given[:5]] == [
        "B",
        "equally_good",
        "equally_bad",
        "A",
        "equally_bad",
    ]
    assert [showing.comment for showing in given if showing.comment] == ["1 of 4"]
    assert 7 <= sum(showing.swapped for showing in given) <= 13


def test_a_phone_shows_everything_without_sideways_scrolling(visit, served):
    page = visit(**PHONE)
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    start(page)
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for box in (label.bounding_box() for label in page.locator("label.choice").all()):
            assert box["height"] >= 44  # a thumb
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
    assert page.evaluate("document.querySelector('figure img').naturalWidth") == 24
    # A stands above B, and each bar is as long as its weight says.
    cards = [card.bounding_box() for card in page.locator(".explanation").all()]
    assert cards[0]["y"] + cards[0]["height"] <= cards[1]["y"]
    track = page.locator("rect.track").first.bounding_box()["width"]
    assert page.locator("rect.fill").first.bounding_box()["width"] == pytest.approx(
        0.62 * track, abs=1
    )
    before = len(answers(served))
    page.tap("label.choice >> nth=2")
    page.tap("button[type=submit]")
    comparison(page, 2)
    assert [showing.answer for showing in answers(served)[before:]] == ["equally_good"]


def luminance(colour):
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(visit, scheme):
    page = visit(color_scheme=scheme)
    start(page)
    behind = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(behind) > 0.5) == (scheme == "light")
    card = page.evaluate("getComputedStyle(document.querySelector('.explanation')).backgroundColor")
    for selector in (".concept", ".weight", ".explanation h2", ".predicted", ".choice span"):
        colour = page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).color")
        light, dark = sorted((luminance(colour), luminance(card)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, selector  # WCAG AA


def test_everything_works_without_scripts(visit, served):
    before = len(answers(served))
    page = visit(java_script_enabled=False)
    start(page)
    page.focus("input[name=choice]")
    page.keyboard.press("ArrowDown")  # the browser's own radio keys
    page.keyboard.press("Enter")
    comparison(page, 2)
    page.click("text=Back")
    comparison(page, 1)
    page.click("text=Equally bad")
    page.click("button[type=submit]")
    comparison(page, 2)
    assert [showing.answer for showing in answers(served)[before:]] == ["equally_bad"]


def test_resume_by_link_and_the_export_of_the_admin_page(visit, served):
    page = visit()
    page.check("input[name=agreed]")
    page.click("button[type=submit]")
    link = page.locator("[data-select]").input_value()
    page.click("a.button")
    comparison(page, 1)
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    comparison(page, 2)
    other = visit(**PHONE)
    other.goto(link)
    comparison(other, 2)
    keeper = visit()
    keeper.goto("/admin")
    keeper.fill("input[type=password]", ADMIN)
    keeper.click("button[type=submit]")
    keeper.wait_for_selector("text=Items by number of answers")
    with keeper.expect_download() as download:
        keeper.click("text=All labels so far")
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines
    assert len(lines) <= len(load_items(served.items))
