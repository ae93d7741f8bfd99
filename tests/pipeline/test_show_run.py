"""`show run=...`: which run is meant, what is said if there is none, and the numbers drawn."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from concept_audit.data.base import ConceptDataset
from concept_audit.models.vae import VAESpec
from concept_audit.models.vae_losses import gaussian_kl, vae_loss
from concept_audit.pipeline.execute import execute
from concept_audit.pipeline.plan import expand
from concept_audit.pipeline.resume import dataset_of
from concept_audit.pipeline.run_pictures import (
    chosen_rows,
    largest_change,
    loss_curves,
    posteriors,
    predictions,
    reconstructions,
    traversals,
)
from concept_audit.pipeline.runs import StoredRun
from concept_audit.pipeline.show import main
from concept_audit.store.layout import OutputLayout

STEMS = ["history", "reconstructions", "traversals"]


def image_set(channels=3, n=20):
    images = np.random.default_rng(0).integers(0, 256, size=(n, 64, 64, channels)).astype(np.uint8)
    images[0], images[1] = 0, 255
    return ConceptDataset(
        name="small",
        x=images,
        c=np.zeros((n, 0), dtype=int),
        y=np.arange(n) % 2,
        concept_names=(),
        class_names=("a", "b"),
        splits={"train": np.arange(4), "test": np.arange(4, n)},
        mean=(0.5,) * channels,
        std=(0.1,) * channels,
    )


def network(channels=3, **options):
    torch.manual_seed(0)
    spec = VAESpec(network="small", **options)
    model = spec.build((channels, 64, 64)).eval()
    with torch.no_grad():  # fresh weights give codes that hardly vary
        model.mean_head.weight.mul_(20)
    return model


def as_torch(images):
    return torch.from_numpy(images).permute(0, 3, 1, 2).float()


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("channels", [1, 3])
def test_reconstructions_carry_the_losses_of_training(channels):
    dataset, model = image_set(channels), network(channels, n_latents=3)
    measured = posteriors(model, dataset, "test")
    shown = reconstructions(model, dataset, measured, 5)
    assert len(shown.images) == 5
    assert len(measured.rows) == 16
    images = dataset.x[measured.rows[:5]] / np.float32(255)
    np.testing.assert_array_equal(shown.images, images)  # in [0, 1], not normalised
    x = as_torch(images)
    with torch.no_grad():
        mean, log_variance = model.posterior(x)
        loss = vae_loss(model.decoder(mean), mean, log_variance, mean, x)
        decoded = model.decode(mean).permute(0, 2, 3, 1).numpy()
        kl = gaussian_kl(mean, log_variance).numpy()
    np.testing.assert_allclose(shown.reconstructions, decoded, atol=1e-6)
    np.testing.assert_allclose(shown.differences, np.abs(images - decoded).mean(axis=-1), atol=1e-6)
    assert shown.cross_entropy.mean() == pytest.approx(float(loss.reconstruction), rel=1e-5)
    np.testing.assert_allclose(shown.kl, kl, rtol=1e-4)


def test_the_least_cross_entropy_is_that_of_a_perfect_copy():
    dataset, model = image_set(1), network(1, n_latents=2)
    train = posteriors(model, dataset, "train")  # rows 0 and 1 are black and white
    assert sorted(train.least)[:2] == [0.0, 0.0]
    gray = dataset.x[train.rows[np.argmax(train.least)]] / 255
    inner = gray[(gray > 0) & (gray < 1)]
    exact = -(inner * np.log(inner) + (1 - inner) * np.log(1 - inner)).sum()
    assert train.least.max() == pytest.approx(exact, rel=1e-6)
    assert (train.cross_entropy > train.least).all()
    shown = reconstructions(model, dataset, train, 4)
    np.testing.assert_allclose(shown.excess, train.cross_entropy - train.least)


@pytest.mark.parametrize("objective", ["beta", "autoencoder"])
def test_a_traversal_decodes_percentiles_of_the_codes_by_importance(objective):
    dataset, model = image_set(), network(n_latents=4, objective=objective)
    measured = posteriors(model, dataset, "test")
    shown = traversals(model, dataset, measured, 5)
    x = as_torch(dataset.x[dataset.rows("test")] / np.float32(255))
    with torch.no_grad():
        mean, log_variance = model.posterior(x)
        mean, log_variance = mean.double(), log_variance.double()
        if objective == "beta":
            per_latent = [
                float(gaussian_kl(mean[:, [i]], log_variance[:, [i]]).mean()) for i in range(4)
            ]
            assert measured.kl.sum(axis=1).mean() == pytest.approx(sum(per_latent), rel=1e-6)
        else:
            assert measured.kl is None
            per_latent = mean.numpy().var(axis=0)
        order = sorted(range(4), key=lambda i: -per_latent[i])
        assert shown.latents.tolist() == order
        np.testing.assert_allclose(shown.importance, np.sort(per_latent)[::-1], rtol=1e-5)
        np.testing.assert_allclose(shown.percentiles, [2.5, 26.25, 50.0, 73.75, 97.5])
        codes = torch.from_numpy(measured.mean[:1]).float()
        for row, latent in enumerate(order):
            for step, percentile in enumerate(shown.percentiles):
                value = np.percentile(mean[:, latent].numpy(), percentile)
                assert shown.values[row, step] == pytest.approx(value, rel=1e-5, abs=1e-6)
                moved = codes.clone()
                moved[0, latent] = value
                by_hand = model.decode(moved)[0].permute(1, 2, 0).numpy()
                np.testing.assert_allclose(shown.images[row, step], by_hand, atol=1e-5)
            gaps = np.abs(shown.values[row] - measured.mean[0, latent])
            assert shown.nearest[row] == gaps.argmin()
    np.testing.assert_array_equal(shown.example, dataset.x[measured.rows[0]] / np.float32(255))


def test_the_largest_change_is_between_any_two_pictures_of_a_latent():
    dataset, model = image_set(1), network(1, n_latents=2)
    shown = traversals(model, dataset, posteriors(model, dataset, "test"), 3)
    images = np.zeros_like(shown.images)
    images[1, 0], images[1, 2, :, :32] = 0.25, 0.75  # 0.5 apart in one half, 0.25 in the other
    assert largest_change(replace(shown, images=images)) == pytest.approx(0.375)
    assert largest_change(replace(shown, images=np.ones_like(images))) == 0


def test_of_a_long_code_the_sixteen_most_important_latents_are_drawn():
    dataset, model = image_set(1), network(1, n_latents=20)
    shown = traversals(model, dataset, posteriors(model, dataset, "test"), 2)
    assert shown.images.shape == (16, 2, 64, 64, 1)


def test_more_examples_keep_the_first_ones():
    dataset = image_set()
    np.testing.assert_array_equal(
        chosen_rows(dataset, "test", 3), chosen_rows(dataset, "test", 9)[:3]
    )
    assert set(chosen_rows(dataset, "test", 99)) == set(range(4, 20))


@pytest.mark.parametrize("with_logits", [True, False])
def test_predictions_put_the_concepts_that_are_most_often_wrong_first(with_logits):
    c = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0], [0, 1, 1]])
    # concept 0 is right on every row, concept 1 on none, concept 2 on half of them
    present = np.stack([c[:, 0], 1 - c[:, 1], [1, 0, 1, 0]], axis=1)
    arrays = {
        "index": np.array([5, 4, 7, 6]),
        "y": np.array([0, 1, 1, 0]),
        "y_logits": np.array([[2.0, 1.0], [2.0, 1.0], [0.0, 1.0], [1.0, 0.0]]),
        "c": c,
        "c_hat": present.astype(float),
    }
    if with_logits:  # as of a logit model: c_hat is no probability
        logits = np.where(present == 1, 1.5, -1.5)
        arrays |= {"c_logits": logits, "c_hat": logits}
    shown = predictions(
        arrays, 4, concept_names=["a", "b", "c"], class_names=["x", "y"], dataset=image_set()
    )
    assert shown.concept_names == ("b", "c", "a")
    np.testing.assert_allclose(shown.concept_accuracy, [0.0, 0.5, 1.0])
    assert shown.task_accuracy == 0.75
    place = shown.classes.index("y")
    assert {shown.predicted_classes[i] for i in range(4)} == {"x", "y"}
    order = np.random.default_rng(0).permutation(4)
    np.testing.assert_array_equal(shown.annotated, c[order][:, [1, 2, 0]])
    high = 1 / (1 + np.exp(-1.5)) if with_logits else 1.0
    expected = np.where(present[order][:, [1, 2, 0]] == 1, high, 1 - high)
    np.testing.assert_allclose(shown.probabilities, expected)
    np.testing.assert_array_equal(shown.wrong, (present != c)[order][:, [1, 2, 0]])
    images = image_set().x[arrays["index"][order]] / np.float32(255)
    np.testing.assert_array_equal(shown.images, images)
    assert arrays["y"][order[place]] == 1


def epoch(phase, number, **losses):
    both = {
        f"{split}_{name}": value for name, value in losses.items() for split in ("train", "val")
    }
    return {"phase": phase, "epoch": number, **both, "lr": 0.1}


def test_losses_that_say_nothing_are_left_out_and_each_phase_marks_what_it_kept():
    history = [
        epoch("encoder", 0, loss=3.0, concept_loss=3.0, task_loss=0.0),
        epoch("encoder", 1, loss=1.0, concept_loss=1.0, task_loss=0.0),
        epoch("encoder", 2, loss=2.0, concept_loss=2.0, task_loss=0.0),
        epoch("head", 0, loss=5.0, concept_loss=0.0, task_loss=5.0),
    ]
    for keeps, kept in (("best", 2), ("last", 3)):
        encoder, head = loss_curves(history, 0, keeps=keeps, unit="nats")
        assert (encoder.phase, encoder.name, encoder.kept_epoch) == (
            "encoder",
            "concept loss",
            kept,
        )
        assert encoder.epochs.tolist() == [1, 2, 3]
        assert encoder.val.tolist() == [3.0, 1.0, 2.0]
        assert (head.phase, head.name, head.kept_epoch) == ("head", "task loss", 1)
    joint = [epoch("joint", 0, loss=3.0, concept_loss=1.0, task_loss=2.0)]
    names = [curve.name for curve in loss_curves(joint, 0, keeps="last", unit="nats")]
    assert names == ["loss minimised", "concept loss", "task loss"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Outputs folder with five small runs, by model, and their keys."""
    folder = tmp_path_factory.mktemp("runs")
    places = [f"paths.output_dir={folder}/outputs", f"paths.data_dir={folder}/data"]
    small = ["profile=smoke", "trainer.jobs=1", "model.spec.network=small", *places]
    image = [*small, "data=dsprites_standin", "data.max_samples=60", "evaluation={}"]
    commands = {
        "vae": [*image, "model=vae", "model.spec.n_latents=2"],
        "autoencoder": [*image, "model=autoencoder", "model.spec.n_latents=2",
                        "model.spec.name=autoencoder"],
        "raw_pixels": [text for text in [*image, "model=raw_pixels"] if "network" not in text],
        "cbm_hard": [
            "profile=smoke", "trainer.jobs=1", *places, "data=tabulartoy_d025", "model=cbm_hard",
            "data.n_samples=200", "recipe.epochs=2", "evaluation={}",
        ],
        "cbm_soft": [
            "profile=smoke", "trainer.jobs=1", *places, "data=shapes3d_standin", "model=cbm_soft",
            "encoder=resnet18_frozen", "encoder.backbone.weights=random",
            "data.max_samples=60", "recipe.epochs=1", "evaluation={}",
        ],
    }  # fmt: skip
    keys = {}
    for name, overrides in commands.items():
        (result,) = execute(expand(overrides))
        assert result.error is None
        keys[name] = result.key
    return folder / "outputs", keys


def show(*arguments):
    return main([str(argument) for argument in arguments])


def test_a_vae_is_drawn_by_the_beginning_of_its_key(stored, capsys):
    outputs, keys = stored
    name, place = f"run={keys['vae'][:6]}", f"paths.output_dir={outputs}"
    assert show(name, place, "n_examples=2", "n_steps=2") == 0
    folder = outputs / "figures" / "runs" / keys["vae"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{stem}.{suffix}" for stem in STEMS for suffix in ("pdf", "png", "svg")
    )
    out = capsys.readouterr().out
    assert [f"wrote {folder / stem}.png (and pdf, svg)" in out for stem in STEMS] == [True] * 3
    first = [np.asarray(Image.open(folder / f"{stem}.png")) for stem in STEMS]
    assert show(name, place, "n_examples=2", "n_steps=2") == 0
    for stem, pixels in zip(STEMS, first, strict=True):
        np.testing.assert_array_equal(np.asarray(Image.open(folder / f"{stem}.png")), pixels)


@pytest.fixture
def drawn(monkeypatch):
    """Figures by path without suffix, kept instead of written: fonts of a PDF take their time."""
    figures = {}
    monkeypatch.setattr(
        "concept_audit.pipeline.show_run._save",
        lambda run, folder, stem, figure: figures.update({folder / stem: figure}),
    )
    return figures


def test_titles_name_model_dataset_stand_in_means_and_order(stored, drawn):
    outputs, keys = stored
    for model, order in (("vae", "mean KL"), ("autoencoder", "variance")):
        assert show(f"run={outputs}/runs/{keys[model]}") == 0
        figures = {path.name: figure for path, figure in drawn.items() if keys[model] in str(path)}
        for stem, what in zip(
            STEMS, ("Training", "Reconstructions", "Latent traversals"), strict=True
        ):
            title, sentences = (text.get_text() for text in figures[stem].texts[:2])
            expected = f"{what}: {model} on dSprites (γ = 0), fold 0, STAND-IN"
            assert title.replace("\n", " ") == expected
            assert keys[model] in sentences
        means = figures["reconstructions"].texts[1].get_text().replace("\n", " ")
        assert "Means over 12 test images: cross-entropy" in means
        assert "(a perfect reconstruction: 0.0)" in means
        assert ("no KL term" in means) == (model == "autoencoder")
        said = figures["traversals"].texts[1].get_text().replace("\n", " ")
        assert f"Latents in the order of their {order}." in said
        assert "No latent changes the picture by more than 2/255" in said  # of untrained models


def test_a_concept_model_shows_its_history_and_predictions(stored, tmp_path, drawn):
    outputs, keys = stored
    shutil.copytree(outputs / "runs", tmp_path / "runs")
    assert show(f"run={tmp_path}/runs/{keys['cbm_hard']}/") == 0
    folder = tmp_path / "figures" / "runs" / keys["cbm_hard"]
    assert set(drawn) == {folder / "history", folder / "predictions"}
    title, sentences = (text.get_text() for text in drawn[folder / "predictions"].texts[:2])
    assert title.replace("\n", " ") == (
        "Predictions: cbm (hard) with mlp_64_64 on TabularToy (δ = 0.25), fold 0"
    )
    arrays = StoredRun(OutputLayout(tmp_path), keys["cbm_hard"]).arrays("test")
    share = (arrays["y_logits"].argmax(axis=1) == arrays["y"]).mean()
    said = sentences.replace("\n", " ")
    assert f"Accuracy of the class over 20 test rows: {share:.0%}. Concepts, each" in said


def test_predictions_of_a_frozen_encoder_show_the_images_that_it_read(stored, tmp_path, drawn):
    outputs, keys = stored
    assert show(f"run={outputs}/runs/{keys['cbm_soft']}", "n_examples=3") == 0
    figure = drawn[outputs / "figures" / "runs" / keys["cbm_soft"] / "predictions"]
    title = figure.texts[0].get_text().replace("\n", " ")
    assert title.startswith("Predictions: cbm (soft) with resnet18_frozen, λ = ")
    run = StoredRun(OutputLayout(outputs), keys["cbm_soft"])
    index = run.arrays("test")["index"]
    first = index[np.random.default_rng(0).permutation(len(index))[0]]
    (axes,) = (axes for axes in figure.axes if axes.get_gid() == "sample 0")
    expected = dataset_of(run.config).x[first] / np.float32(255)
    np.testing.assert_array_equal(axes.images[0].get_array(), expected)


def test_what_was_never_trained_has_no_picture(stored, capsys):
    outputs, keys = stored
    assert show(f"run={keys['raw_pixels']}", f"paths.output_dir={outputs}") == 1
    err = capsys.readouterr().err
    assert f"run {keys['raw_pixels']} (raw_pixels) was not trained" in err
    assert "predictions of concept models" in err


def test_an_unknown_run_lists_those_that_exist(stored, tmp_path, capsys):
    outputs, keys = stored
    assert show("run=vae", f"paths.output_dir={outputs}") == 2
    err = capsys.readouterr().err
    assert f"run=vae is unknown: no key under {outputs / 'runs'} starts like this" in err
    lines = [line.split() for line in err.splitlines() if line.startswith("  ")]
    assert lines[0][:4] == [keys["vae"], "dsprites_g0_standin", "vae", "done"]
    assert [keys["cbm_hard"], "tabulartoy_d025", "cbm", "(hard)", "done"] in [
        line[:5] for line in lines
    ]
    assert show("run=cbm_hard", f"paths.output_dir={outputs}") == 2
    listed = capsys.readouterr().err.splitlines()[1].split()
    assert listed[0] == keys["cbm_hard"]
    assert {line[0] for line in lines} == set(keys.values())
    assert show("run=0123", f"paths.output_dir={tmp_path}") == 2
    assert f"there are no runs under {tmp_path / 'runs'}" in capsys.readouterr().err
    assert show("run=", f"paths.output_dir={outputs}") == 2
    assert show(f"run={tmp_path}/elsewhere/{keys['vae']}") == 2
    assert "no folder right below one named runs" in capsys.readouterr().err


def test_an_ambiguous_beginning_lists_what_it_fits(tmp_path, capsys):
    for number in range(1, 5):
        (tmp_path / "runs" / f"abc{number}").mkdir(parents=True)
    for number, state in ((2, "failed"), (3, "running"), (4, "failed")):
        content = {"state": state, "time": "noon", "files": {}, "error": "", "info": {}}
        (tmp_path / "runs" / f"abc{number}" / "status.json").write_text(json.dumps(content))
    config = (
        "{data: {_target_: a.cub.cub, standin: true}, "
        "model: {spec: {_target_: b.cbm.CBMSpec, encoding: soft}}}"
    )
    (tmp_path / "runs" / "abc4" / "config.yaml").write_text(config)
    assert show("run=abc", f"paths.output_dir={tmp_path}") == 2
    err = capsys.readouterr().err
    assert "run=abc fits 4 runs" in err
    assert err.splitlines()[1:] == [
        "  abc1  without a status",
        "  abc2  failed before it was named noon",
        "  abc3  running, not named yet noon",
        "  abc4  cub_standin  cbm (soft)  failed noon",
    ]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (None, "run abc1 was never finished"),
        (
            {"state": "running", "info": {"host": "node7", "pid": 12}},
            "training since noon by process 12 on node7",
        ),
        (
            {"state": "failed", "error": "Traceback\n  ...\nValueError: too large"},
            "run abc1 failed at noon: ValueError: too large.",
        ),
        ({"state": "done", "files": {"checkpoint.ckpt": "0"}}, "checkpoint.ckpt is missing"),
    ],
)
def test_an_unfinished_run_says_its_status(tmp_path, capsys, status, said):
    folder = tmp_path / "runs" / "abc1"
    folder.mkdir(parents=True)
    if status is not None:
        content = {"time": "noon", "files": {}, "error": None, "info": {}, **status}
        (folder / "status.json").write_text(json.dumps(content))
    assert show(f"run={folder}") == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("split=tests", "split must be one of train, val, test, got 'tests'"),
        ("n_examples=0", "n_examples must be a whole number from 1 to 24, got '0'"),
        ("n_examples=13", "n_examples must be at most 12, the rows of split test, got 13"),
        ("n_steps=one", "n_steps must be a whole number from 2 to 15, got 'one'"),
        ("n_step=3", "Did you mean n_steps?"),
        ("data=dsprites_standin", "data= and run= exclude each other"),
    ],
)
def test_wrong_arguments_are_named(stored, tmp_path, drawn, capsys, argument, said):
    outputs, keys = stored
    assert show(argument, f"run={outputs}/runs/{keys['vae']}", f"paths.output_dir={tmp_path}") == 2
    assert said in capsys.readouterr().err


def test_data_that_moved_is_found_and_data_that_changed_is_refused(stored, tmp_path, drawn, capsys):
    outputs, keys = stored
    run = f"run={outputs}/runs/{keys['vae']}"
    place = f"paths.output_dir={tmp_path}/pictures"
    assert show(run, place, f"paths.data_dir={tmp_path}/data", "n_examples=1", "n_steps=2") == 0
    assert (tmp_path / "data").is_dir()  # drawn again where the user said
    folder = tmp_path / "pictures" / "figures" / "runs" / keys["vae"]
    assert set(drawn) == {folder / stem for stem in STEMS}
    shutil.copytree(outputs / "runs", tmp_path / "runs")
    manifest = tmp_path / "runs" / keys["vae"] / "manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "dataset_fingerprint": "f" * 64}))
    assert show(f"run={tmp_path}/runs/{keys['vae']}") == 1
    err = capsys.readouterr().err
    assert "was trained on other data than dsprites_g0_standin holds now" in err
    assert "expected fingerprint ffffffffffffffff" in err


def test_help_names_both_forms_and_loads_neither_torch_nor_hydra():
    code = (
        "import sys; from concept_audit.pipeline.entry import main;"
        "assert main(['show', '--help']) == 0;"
        "print(sorted({'torch', 'hydra', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "concept-audit show data=<name>" in done.stdout
    assert "concept-audit show run=<run key" in done.stdout
    assert done.stdout.endswith("[]\n")
