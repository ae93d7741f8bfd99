"""A small item set, and a client that behaves like a participant's browser."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi.testclient import TestClient
from PIL import Image

from concept_audit.council.study.items import (
    ConceptBar,
    ShownExplanation,
    StudyItem,
    write_items,
)

ADMIN = "an-admin-token-of-the-tests"
MODELS = ("model_alpha", "model_beta", "model_gamma")


def item(number: int, a: str, b: str, **changes: object) -> StudyItem:
    """One item; the concept names tell which model an explanation comes from."""

    def shown(model: str) -> ShownExplanation:
        bars = [
            ConceptBar(name=f"concept of {model[6:]}", weight=0.62),
            ConceptBar(name="fur", weight=0.2),
        ]
        return ShownExplanation(model=model, predicted_class="Cat", concepts=bars)

    fields: dict[str, object] = {
        "dataset": "toy",
        "image_id": f"image-{number}",
        "image": f"images/{number}.png",
        "class_name": "Cat",
        "a": shown(a),
        "b": shown(b),
    }
    return StudyItem(**{**fields, **changes})


def write_folder(folder: Path, n_images: int, **changes: object) -> Path:
    """Item folder with all three pairs of each image."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    items = []
    for number in range(n_images):
        Image.new("RGB", (24, 16), (number % 256, 90, number // 256)).save(
            folder / f"images/{number}.png"
        )
        pairs = [(MODELS[0], MODELS[1]), (MODELS[0], MODELS[2]), (MODELS[1], MODELS[2])]
        items += [item(number, a, b, **changes) for a, b in pairs]
    write_items(folder, items)
    return folder


class Browser:
    """Follows links and sends the forms of the pages it got, as a person would."""

    def __init__(self, app, **options):
        self.client = TestClient(app, follow_redirects=True, **options)
        self.page = None

    def get(self, address, **options):
        self.page = self.client.get(address, **options)
        return self.page

    def field(self, name):
        found = re.search(rf'name="{name}" value="([^"]*)"', self.page.text)
        return found.group(1) if found else ""

    def start(self):
        self.get("/")
        self.page = self.client.post(
            "/start", data={"form_token": self.field("form_token"), "agreed": "yes"}
        )
        found = re.search(r"/s/([\w-]{20,40})", str(self.page.url))
        return found.group(1) if found else None

    @property
    def action(self):
        return re.search(
            r'<form method="post" action="([^"]+)" data-answers', self.page.text
        ).group(1)

    @property
    def left(self):
        """Model whose explanation stands on the left."""
        return "model_" + re.findall(r'class="concept">concept of (\w+)', self.page.text)[0]

    @property
    def right(self):
        return "model_" + re.findall(r'class="concept">concept of (\w+)', self.page.text)[1]

    def answer(self, choice, **more):
        data = {
            "form_token": self.field("form_token"),
            "item": self.field("item"),
            "choice": choice,
        }
        self.page = self.client.post(self.action, data={**data, **more})
        return self.page
