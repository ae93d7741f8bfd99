"""Whether models, scores and probes give the same numbers on another device as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from concept_audit import metrics
from concept_audit.data.base import ConceptDataset
from concept_audit.data.tabulartoy import tabulartoy
from concept_audit.metrics.probes.mlp import MlpProbes
from concept_audit.models.arithmetic import matrix_products, one_thread
from concept_audit.models.cbm import CBMSpec
from concept_audit.models.cem import CEMSpec
from concept_audit.models.frozen import frozen_features
from concept_audit.models.image_encoders import Conv4Spec, ResNet18Spec
from concept_audit.models.reference_head import ReferenceHeadSpec
from concept_audit.training.augmentation import augment, draw_augmentation
from concept_audit.training.bank import train_bank
from concept_audit.training.predict import build_model, head_callable, load_state, predict
from concept_audit.training.recipe import FitResult, Member, Recipe, initial_model

__all__ = ["Comparison", "agreement_parts", "compared"]

# Largest differences that rounding explains. Each names what it is made of.
_OUTPUTS = 2e-4  # float32, logits up to 50: 64 products of them a layer, each off by 6e-8 of itself
_LOSSES = 1e-3  # some hundred steps of Adam, whose first ones amplify the rounding of a gradient
_TRAINED_SCORES = 0.02  # of two such trainings; the spread over seeds is larger
_SCORES_ON_LOGITS = 2e-3  # logits moved by 1e-5 shift a neighbour count of a few in 1000 samples
# Saturated probabilities lie one float32 step apart, so that rounding reorders their neighbours:
# moved by two steps, CTL of a converged model changed by 0.006.
_SCORES_ON_PROBABILITIES = 0.015
_ESTIMATES = 1e-9  # float64 on both sides, the same arrays
_PROBE_AUC = 0.02  # OIS: 2 x the root mean square of AUC differences, of nets trained in float32


@dataclass(frozen=True)
class Comparison:
    """Values computed on the CPU and on the device; `agree` is False also where one is not finite.

    `largest_difference` is absolute, infinite for a value that is finite on one side only.
    """

    name: str
    n_values: int
    largest_difference: float
    tolerance: float
    agree: bool

    def describe(self) -> dict[str, Any]:
        """Plain dictionary."""
        return asdict(self)


def compared(name: str, here: ArrayLike, there: ArrayLike, tolerance: float) -> Comparison:
    """Compare two arrays; NaN at the same place on both sides (an undefined score) is equal.

    Parameters
    ----------
    name : str
        What was computed.
    here, there : array
        Values on the CPU and on the device.
    tolerance : float
        Largest absolute difference that counts as agreement.

    Raises
    ------
    ValueError
        On arrays of different shapes.
    """
    one, other = np.asarray(here, dtype=np.float64), np.asarray(there, dtype=np.float64)
    if one.shape != other.shape:
        raise ValueError(
            f"{name} must have one shape on both devices: got {one.shape} on the CPU and "
            f"{other.shape} on the other."
        )
    undefined = np.isnan(one) & np.isnan(other)
    finite = np.isfinite(one) & np.isfinite(other)
    gap = np.full(one.shape, np.inf)
    gap[finite] = np.abs(one[finite] - other[finite])
    gap[undefined] = 0.0
    largest = float(gap.max()) if gap.size else 0.0
    return Comparison(name, int(gap.size), largest, tolerance, largest <= tolerance)


class _Subjects:
    """Small models on TabularToy, trained when first asked for."""

    def __init__(self, device: str, quick: bool) -> None:
        self.device = device
        self.quick = quick
        self.dataset: ConceptDataset = tabulartoy(n_samples=1000 if quick else 4000)
        self.recipe = Recipe(epochs=3 if quick else 20, batch_size=128, head_epochs=3)
        self.spec = CBMSpec(encoding="soft")
        self.members = [
            Member(self.spec, seed=seed, lambda_concept=weight, label=f"{seed}/{weight}")
            for seed, weight in ((0, 0.1), (1, 1.0), (2, 10.0))
        ]

    def bank(self, members: list[Member], device: str) -> list[FitResult]:
        """Members trained as one program."""
        results = train_bank(members, self.dataset, recipe=self.recipe, device=device)
        failed = [result.failed for result in results if result.failed]
        if failed:
            raise RuntimeError(f"training on {device} failed: {failed[0]}")
        return results

    @cached_property
    def trained(self) -> list[FitResult]:
        """Three CBMs, trained on the CPU."""
        return self.bank(self.members, "cpu")

    def arrays(
        self, result: FitResult, device: str, split: str = "test"
    ) -> dict[str, NDArray[Any]]:
        """Arrays of a split as a bundle holds them."""
        model = load_state(build_model(result.member.spec, self.dataset), result.state_dict)
        return predict(model, self.dataset, split, device=device)

    @cached_property
    def pair(self) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        """One CPU-trained CBM, predicted on the CPU and on the device."""
        result = self.trained[1]
        return self.arrays(result, "cpu"), self.arrays(result, self.device)

    @cached_property
    def fitted(self) -> dict[str, NDArray[Any]]:
        """Training split of that model on the CPU: enough rows to train probes on."""
        return self.arrays(self.trained[1], "cpu", "train")

    def scores(self, arrays: dict[str, NDArray[Any]], on: str) -> list[float]:
        """CTL and ICL."""
        ctl = metrics.concepts_task_leakage(arrays[on], arrays["c"], arrays["y"])
        return [ctl.mean, metrics.interconcept_leakage(arrays[on], arrays["c"]).mean]

    def curve(
        self, result: FitResult, arrays: dict[str, NDArray[Any]], device: str
    ) -> NDArray[np.float64]:
        """Task accuracy after 0..k interventions, with the head on the device."""
        model = load_state(build_model(result.member.spec, self.dataset), result.state_dict)
        head = head_callable(model, device=device)
        c_hat, c, y = arrays["c_hat"], arrays["c"], arrays["y"]
        return metrics.intervention_curve(head, c_hat, c, y, kind="soft").task_accuracy

    @cached_property
    def reference_accuracy(self) -> float:
        """Test accuracy of a head on true concepts, of the CPU: the same in both S_int."""
        (result,) = self.bank([Member(ReferenceHeadSpec())], "cpu")
        arrays = self.arrays(result, "cpu")
        return float((arrays["y_logits"].argmax(axis=1) == arrays["y"]).mean())

    @cached_property
    def embedding(self) -> dict[str, NDArray[Any]]:
        """Concept vectors of a CEM trained and predicted on the CPU."""
        spec = CEMSpec(embedding_size=8)
        (result,) = self.bank([Member(spec, p_int=0.25)], "cpu")
        return self.arrays(result, "cpu")


def _training(subjects: _Subjects) -> list[Comparison]:
    here, there = subjects.trained, subjects.bank(subjects.members, subjects.device)

    def losses(results: list[FitResult]) -> list[list[float]]:
        names = ("train_loss", "val_loss")
        return [[row[name] for row in result.history for name in names] for result in results]

    def scores(results: list[FitResult], device: str) -> list[list[float]]:
        rows = []
        for result in results:
            arrays = subjects.arrays(result, device)
            curve = subjects.curve(result, arrays, device)
            rows.append([*subjects.scores(arrays, "c_logits"), float(curve[-1])])
        return rows

    return [
        compared("losses of every epoch, trained on each", losses(here), losses(there), _LOSSES),
        compared(
            "CTL, ICL and intervened accuracy, trained on each",
            scores(here, "cpu"),
            scores(there, subjects.device),
            _TRAINED_SCORES,
        ),
    ]


def _outputs(subjects: _Subjects) -> list[Comparison]:
    here, there = subjects.pair
    return [
        compared(f"{name} of one model", here[name], there[name], _OUTPUTS)
        for name in ("c_logits", "c_hat", "y_logits")
    ]


def _leakage(subjects: _Subjects) -> list[Comparison]:
    here, there = subjects.pair
    tolerances = {"c_logits": _SCORES_ON_LOGITS, "c_hat": _SCORES_ON_PROBABILITIES}
    return [
        compared(
            f"CTL and ICL of one model, on {on}",
            subjects.scores(here, on),
            subjects.scores(there, on),
            tolerance,
        )
        for on, tolerance in tolerances.items()
    ]


def _interventions(subjects: _Subjects) -> list[Comparison]:
    result = subjects.trained[1]
    here, there = (
        subjects.curve(result, arrays, device)
        for arrays, device in zip(subjects.pair, ("cpu", subjects.device), strict=True)
    )
    reference = subjects.reference_accuracy
    s_int_here = metrics.intervention_score(reference, float(here[-1]))
    s_int_there = metrics.intervention_score(reference, float(there[-1]))
    tie = 2 / len(subjects.dataset.rows("test"))  # a sample or two at the border of two classes
    return [
        compared("intervention curve", here, there, tie),
        compared("S_int", s_int_here, s_int_there, tie),
    ]


def _vectors(subjects: _Subjects) -> list[Comparison]:
    a, device = subjects.embedding, subjects.device
    scores: tuple[tuple[Callable[..., Any], tuple[NDArray[Any], ...]], ...] = (
        (metrics.concepts_task_information, (a["c_mix"], a["y"])),
        (metrics.interconcept_information, (a["c_mix"], a["c"])),
        (metrics.self_information, (a["c_mix"], a["c"])),
        (metrics.alignment_leakage, (a["c_pos"], a["c_neg"], a["c"], a["y"])),
    )
    rows = [
        compared(
            score.__name__,
            score(*arrays).per_concept,
            score(*arrays, device=device).per_concept,
            _ESTIMATES,
        )
        for score, arrays in scores
    ]
    one, other = a["c_mix"][:, 0], a["c_mix"][:, 1]
    here = metrics.mutual_information(one, other)
    there = metrics.mutual_information(one, other, device=device)
    return [*rows, compared("mutual_information of two vectors", here, there, _ESTIMATES)]


def _impurity(subjects: _Subjects) -> list[Comparison]:
    arrays = subjects.fitted
    epochs = 3 if subjects.quick else 20
    here, there = (
        metrics.oracle_impurity_score(arrays["c_hat"], arrays["c"], epochs=epochs, device=device)
        for device in ("cpu", subjects.device)
    )
    return [
        compared("oracle_impurity_score", here.mean, there.mean, _PROBE_AUC),
        compared("AUC of its probes", here.auc, there.auc, _PROBE_AUC),
    ]


def _probes(subjects: _Subjects) -> list[Comparison]:
    codes, factors = subjects.fitted["c_logits"], subjects.fitted["c"]
    n_held_out = len(codes) // 4
    train, held_out = slice(2 * n_held_out), slice(-n_held_out, None)
    validation = slice(2 * n_held_out, 3 * n_held_out)
    probe = MlpProbes(widths=(0, 6, 24), epochs=3 if subjects.quick else 20)
    here, there = (
        metrics.loss_capacity_curve(
            codes[train],
            factors[train],
            probe,
            validation=(codes[validation], factors[validation]),
            test=(codes[held_out], factors[held_out]),
            device=device,
        ).losses
        for device in ("cpu", subjects.device)
    )
    tie = 2 / n_held_out  # a sample or two at the border of two classes
    return [compared("loss-capacity curve of MLP probes", here, there, tie)]


def _images(subjects: _Subjects) -> list[Comparison]:
    """Convolutions, under torch's own settings: prediction and features have to set theirs."""
    rng = np.random.default_rng(0)
    n = 32 if subjects.quick else 64
    x = rng.integers(0, 256, (n, 64, 64, 3), np.uint8)
    dataset = ConceptDataset(
        name="random_images",
        x=x,
        c=rng.integers(0, 2, (n, 3)),
        y=np.arange(n) % 2,
        concept_names=("a", "b", "c"),
        class_names=("n", "y"),
        splits={"test": np.arange(n)},
        mean=(0.5,) * 3,
        std=(0.5,) * 3,
        standin=True,
    )
    drawn = torch.from_numpy(draw_augmentation(rng, n, (64, 64)))
    pixels = torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255
    model = initial_model(Member(CBMSpec(encoder=Conv4Spec())), dataset)
    found = {}
    for device in ("cpu", subjects.device):
        found[device] = {
            "c_logits of a conv4 model": predict(model, dataset, "test", device=device)["c_logits"],
            "features of a frozen ResNet-18": frozen_features(
                x, ResNet18Spec(weights="random"), seed=0, device=device
            ),
            "augmented images": augment(pixels.to(device), drawn.to(device)).cpu().numpy(),
        }
    here, there = found["cpu"], found[subjects.device]
    return [compared(name, here[name], there[name], _OUTPUTS) for name in here]


def agreement_parts(device: str, *, quick: bool) -> dict[str, Callable[[], list[Comparison]]]:
    """Comparisons of the CPU with a device, by name; each can fail without the others.

    Parameters
    ----------
    device : str
        Torch device. With ``cpu`` trainings and predictions repeat themselves, while the scores of
        vectors still compare compiled kernels with torch.
    quick : bool
        Fewer rows and epochs.

    Returns
    -------
    dict of functions without arguments, each of which gives a list of `Comparison`.
    """
    subjects = _Subjects(device, quick)
    parts = {
        "training": _training,
        "outputs": _outputs,
        "leakage": _leakage,
        "interventions": _interventions,
        "vector_information": _vectors,
        "oracle_impurity": _impurity,
        "mlp_probes": _probes,
    }

    def bound(part: Callable[[_Subjects], list[Comparison]]) -> Callable[[], list[Comparison]]:
        def run() -> list[Comparison]:
            with matrix_products(), one_thread():
                return part(subjects)

        return run

    return {"images": lambda: _images(subjects), **{name: bound(p) for name, p in parts.items()}}
