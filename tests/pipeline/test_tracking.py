"""The W&B mirror: written from the store, once, and rebuilt on request."""

from __future__ import annotations

import pytest

from concept_audit.pipeline.execute import execute
from concept_audit.pipeline.plan import expand
from concept_audit.pipeline.tracking import _summary, default_logger, sync
from concept_audit.store.layout import OutputLayout

pytestmark = [
    # wandb's own socket is closed by its service process after the test has ended
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mirror")
    cells = expand(
        [
            "profile=smoke",
            "trainer.jobs=1",
            "evaluation=[accuracy]",
            "recipe.epochs=1",
            f"paths.output_dir={folder}",
        ]
    )
    (result,) = execute(cells)
    assert result.error is None
    return OutputLayout(folder)


def test_each_run_is_mirrored_once_and_all_again_on_request(layout):
    pytest.importorskip("wandb")
    assert sync(layout, "wandb_offline") == 1
    folders = [path.name for path in (layout.root / "wandb").glob("offline-run-*")]
    assert [name for name in folders if name.endswith(layout.run_keys()[0])]
    assert [name for name in folders if name.endswith("-report")]
    assert sync(layout, "wandb_offline") == 0
    assert sync(layout, "wandb_offline", rebuild=True) == 1


def test_the_summary_holds_the_scores_of_the_store(layout):
    summary = _summary(layout, layout.run_keys()[0])
    assert 0 <= summary["task_accuracy/mean"] <= 1
    assert {"concept_accuracy/c1", "concept_auc/mean"} <= set(summary)


def test_without_the_package_everything_else_works(layout, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert default_logger("embedded") == "none"
    assert sync(layout, "wandb_offline") == 0
    assert "concept-audit[wandb]" in capsys.readouterr().err


def test_no_logger_mirrors_nothing(layout):
    assert sync(layout, "none") == 0
    assert default_logger("smoke") == "none"
