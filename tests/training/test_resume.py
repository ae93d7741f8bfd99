"""A run killed in training resumes to the same numbers, bit for bit."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from concept_audit.models.cbm import CBMSpec
from concept_audit.models.cem import CEMSpec
from concept_audit.training.bank import train_bank
from concept_audit.training.concept_module import ConceptModule
from concept_audit.training.fitting import fit_single
from concept_audit.training.recipe import Member, Recipe
from concept_audit.training.resume_file import previous_path, read_resume, write_resume


class Killed(BaseException):
    """Stands for a kill: no handler in the package catches it."""


def kill_at(epoch: int):
    def progress(done: int, total: int, losses: dict[str, float]) -> None:
        if done == epoch:
            raise Killed

    return progress


def bank(members, dataset, **options):
    return train_bank(members, dataset, **options)


def single(members, dataset, **options):
    return [fit_single(members[0], dataset, **options)]


LEAKY = {"concept_output": "leaky_relu", "concept_dropout": 0.2}
CASES = {
    "soft": [Member(CBMSpec(), seed=s) for s in range(3)],
    "logit": [Member(CBMSpec(encoding="logit", **LEAKY), seed=s) for s in range(3)],
    "cem": [Member(CEMSpec(), seed=s, p_int=0.5) for s in range(2)],
    "hard": [Member(CBMSpec(encoding="hard"), seed=s) for s in range(2)],
}


@pytest.mark.parametrize("train", [bank, single])
@pytest.mark.parametrize(("case", "killed_at"), [
    ("soft", 5), ("logit", 5), ("cem", 5), ("hard", 5), ("hard", 10),
])  # fmt: skip
def test_a_killed_run_goes_on_to_the_same_digits(toy, tmp_path, train, case, killed_at):
    recipe = Recipe(epochs=6, batch_size=128, lr=5e-3, head_epochs=6, plateau_patience=1)
    members, path = CASES[case], tmp_path / "resume.ckpt"
    whole = train(members, toy, recipe=recipe)
    with pytest.raises(Killed):
        train(members, toy, recipe=recipe, resume_path=path, save_every=2,
              progress=kill_at(killed_at))  # fmt: skip
    assert path.exists()
    epochs = []
    resumed = train(members, toy, recipe=recipe, resume_path=path, save_every=2,
                    progress=lambda done, *_: epochs.append(done))  # fmt: skip
    # Earlier epochs are not repeated: only those since the last state of two epochs.
    assert killed_at - 2 < epochs[0] <= killed_at + 1
    for a, b in zip(whole, resumed, strict=True):
        assert a.history == b.history
        assert a.best_epoch == b.best_epoch
        assert all(torch.equal(a.state_dict[name], b.state_dict[name]) for name in a.state_dict)
    assert not path.exists()
    assert not previous_path(path).exists()


def test_a_bank_resumes_after_members_have_left(toy, tmp_path):
    recipe = Recipe(epochs=30, batch_size=128, lr=0.05, early_stopping_patience=3)
    members = [Member(CBMSpec(), seed=s, lambda_concept=w)
               for s in (0, 1) for w in (0.1, 2.0, 1e39)]  # fmt: skip
    whole = train_bank(members, toy, recipe=recipe)
    lengths = sorted(len(result.history) for result in whole if result.failed is None)
    assert lengths[0] < lengths[-1]
    path = tmp_path / "resume.ckpt"
    with pytest.raises(Killed):
        train_bank(members, toy, recipe=recipe, resume_path=path, save_every=1,
                   progress=kill_at(lengths[0] + 1))  # fmt: skip
    resumed = train_bank(members, toy, recipe=recipe, resume_path=path)
    for a, b in zip(whole, resumed, strict=True):
        assert (a.history, a.failed) == (b.history, b.failed)
        assert all(torch.equal(a.state_dict[name], b.state_dict[name]) for name in a.state_dict)


@pytest.mark.parametrize("train", [bank, single])
def test_a_resume_file_of_another_training_is_refused(toy, tmp_path, short, train):
    path = tmp_path / "resume.ckpt"
    with pytest.raises(Killed):
        train(CASES["soft"], toy, recipe=short, resume_path=path, save_every=1,
              progress=kill_at(2))  # fmt: skip
    other = dataclasses.replace(short, lr=1e-4)
    with pytest.raises(ValueError, match=r"other members, data or recipe .* Delete it"):
        train(CASES["soft"], toy, recipe=other, resume_path=path)


def test_a_truncated_file_falls_back_to_the_previous_one(tmp_path):
    path = tmp_path / "resume.ckpt"
    write_resume(path, "me", {"epoch": 1, "values": torch.arange(3)})
    write_resume(path, "me", {"epoch": 2, "values": torch.arange(3)})
    assert read_resume(path, "me")["epoch"] == 2
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match="since the newer file cannot be read"):
        assert read_resume(path, "me")["epoch"] == 1
    previous_path(path).write_bytes(b"")
    with pytest.raises(ValueError, match="no resume file can be read"):
        read_resume(path, "me")
    assert read_resume(tmp_path / "none.ckpt", "me") is None


def test_a_resume_file_that_hides_code_is_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "made"), "w"))

    path = tmp_path / "resume.ckpt"
    torch.save({"format": 1, "identity": "me", "state": Trap()}, path)
    with pytest.raises(ValueError, match="UnpicklingError"):
        read_resume(path, "me")
    assert not (tmp_path / "made").exists()


def test_a_training_that_diverges_leaves_no_state_to_go_on_from(toy, tmp_path, monkeypatch):
    recipe = Recipe(epochs=6, batch_size=128, lr=1e-3)
    path = tmp_path / "resume.ckpt"
    real = ConceptModule.losses

    def broken(self, batch, intervene=None):
        losses = real(self, batch, intervene)
        return losses * float("nan") if self.epoch == 4 else losses

    monkeypatch.setattr(ConceptModule, "losses", broken)
    result = fit_single(Member(CBMSpec()), toy, recipe=recipe, resume_path=path, save_every=2)
    assert "epoch 4" in result.failed
    assert list(tmp_path.iterdir()) == []
