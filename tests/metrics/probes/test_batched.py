"""Networks trained in company equal the same networks trained alone."""

from __future__ import annotations

import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from concept_audit.metrics.probes.batched import (  # noqa: E402
    Network,
    Training,
    import_torch,
    train_networks,
)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5)).astype(np.float32)
    classes = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    value = x[:, 0] * x[:, 1]
    bits = (x[:, 2:4] > 0).astype(int)
    return x, classes, value, bits


def _single(x, y, net, training):
    """The same network by torch modules, autograd and AdamW, fed with the same batches."""
    generator = torch.Generator().manual_seed(net.seed)
    sizes = [x.shape[1], *net.hidden, net.n_outputs]
    layers = []
    for i in range(len(sizes) - 1):
        layer = torch.nn.Linear(sizes[i], sizes[i + 1])
        bound = 1 / np.sqrt(sizes[i])
        with torch.no_grad():
            layer.weight.copy_(
                (torch.rand(*layer.weight.shape, generator=generator) * 2 - 1) * bound
            )
            layer.bias.copy_((torch.rand(sizes[i + 1], generator=generator) * 2 - 1) * bound)
        layers += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay
    )
    order = torch.Generator().manual_seed(training.order_seed)
    x, y = torch.tensor(x), torch.tensor(y)
    losses = {
        "categorical": torch.nn.functional.cross_entropy,
        "continuous": lambda out, t: torch.nn.functional.mse_loss(out, t.float()),
        "binary": lambda out, t: torch.nn.functional.binary_cross_entropy_with_logits(
            out, t.float()
        ),
    }
    for epoch in range(training.epochs):
        optimiser.param_groups[0]["lr"] = training.learning_rate_at(epoch)
        rows = torch.randperm(len(x), generator=order)
        for start in range(0, len(x), training.batch_size):
            i = rows[start : start + training.batch_size]
            loss = losses[net.kind](model(x[i]), y[i])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model(x).detach().numpy()


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_padded_networks_equal_torch_modules_trained_alone(data, weight_decay):
    x, classes, value, bits = data
    networks = [
        Network(target=0, hidden=(12, 12), kind="categorical", n_outputs=3, seed=1),
        Network(target=1, hidden=(16, 16), kind="continuous", seed=2),
        Network(target=2, hidden=(5, 5), kind="binary", n_outputs=2, seed=3),
        Network(target=0, hidden=(), kind="categorical", n_outputs=3, seed=4),
        Network(target=1, hidden=(40,), kind="continuous", seed=5),
    ]
    training = Training(
        epochs=10, batch_size=64, learning_rate=1e-3, weight_decay=weight_decay, order_seed=7
    )
    targets = [classes, value, bits]
    trained = train_networks([x], targets, networks, training=training)
    outputs = trained.predict([x], logits=True)
    for net, out in zip(networks, outputs, strict=True):
        y = [classes, value[:, None], bits][net.target]
        assert np.abs(out - _single(x, y, net, training)).max() < 1e-5


def test_padding_stays_exactly_zero(data):
    x, classes, value, _ = data
    networks = [Network(target=0, hidden=(h, h), n_outputs=3, seed=h) for h in (4, 9, 16)]
    trained = train_networks([x], [classes, value], networks, training=Training(epochs=3))
    (bucket,) = trained._buckets
    for row, net in enumerate(bucket.networks):
        width = net.hidden[0]
        assert not bucket.best[0][row, :, width:].any()
        assert not bucket.best[2][row, width:].any()
        assert not bucket.best[2][row, :, width:].any()


def test_weights_reproduce_the_predictions(data):
    x, classes, value, bits = data
    networks = [
        Network(target=0, hidden=(6, 6), n_outputs=3),
        Network(target=1, hidden=(9, 9), kind="continuous"),
        Network(target=2, kind="binary", n_outputs=2),
    ]
    trained = train_networks([x], [classes, value, bits], networks, training=Training(epochs=2))
    for i, out in enumerate(trained.predict([x])):
        np.testing.assert_allclose(trained.weights(i)(x), out, atol=1e-6)
    assert trained.weights(0).n_parameters == 6 * 6 + 7 * 6 + 7 * 3
    with pytest.raises(IndexError, match="index must be below 3, got 5"):
        trained.weights(5)


def test_each_network_reads_its_own_source(data):
    x, classes, _, _ = data
    inputs = [x[:, :1], x[:, 1:3]]
    networks = [Network(source=s, hidden=(8,), n_outputs=3, seed=s) for s in (0, 1)]
    training = Training(epochs=3, learning_rate=1e-2)
    both = train_networks(inputs, [classes], networks, training=training).predict(inputs)
    assert not np.allclose(both[0], both[1])
    for net, mine in zip(networks, both, strict=True):
        own = inputs[net.source]
        alone = Network(hidden=(8,), n_outputs=3, seed=net.seed)
        (out,) = train_networks([own], [classes], [alone], training=training).predict([own])
        np.testing.assert_allclose(mine, out, atol=1e-5)


def test_best_epoch_is_shared_by_a_group(data):
    x, classes, value, _ = data
    networks = [
        Network(target=0, hidden=(8, 8), n_outputs=3, group="a"),
        Network(target=1, hidden=(8, 8), kind="continuous", group="a"),
    ]
    training = Training(epochs=8, learning_rate=1e-2)
    targets = [classes, value]
    trained = train_networks(
        [x[:300]],
        [t[:300] for t in targets],
        networks,
        training=training,
        validation=([x[300:]], [t[300:] for t in targets]),
    )
    assert trained.validation_scores.shape == (8, 2)
    assert (trained.best_epochs == trained.validation_scores.mean(axis=1).argmax()).all()
    accuracy = (trained.predict([x[300:]])[0].argmax(axis=1) == classes[300:]).mean()
    assert accuracy == trained.validation_scores[trained.best_epochs[0], 0]


def test_evaluations_end_with_the_last_epoch():
    assert Training(epochs=10).evaluated() == set(range(10))
    assert Training(epochs=10, evaluations=2).evaluated() == {4, 9}
    assert Training(epochs=10, evaluations=1).evaluated() == {9}


def test_same_seed_same_digits(data):
    x, classes, _, _ = data
    nets = [Network(hidden=(8, 8), n_outputs=3, seed=3)]
    runs = [train_networks([x], [classes], nets).predict([x])[0] for _ in range(2)]
    assert (runs[0] == runs[1]).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"networks": []}, "networks must hold at least one Network"),
        ({"networks": [Network(kind="class")]}, "kind must be one of .* got 'class'"),
        ({"networks": [Network(source=1, n_outputs=3)]}, "reads source 1 .* there are 1 inputs"),
        ({"networks": [Network(n_outputs=2)]}, "must hold classes 0 to 1 .* got 0 to 2"),
        (
            {"networks": [Network(kind="continuous", n_outputs=2)]},
            r"n_outputs is 2, but targets\[0\] has 1 columns",
        ),
        (
            {"networks": [Network(n_outputs=3), Network(kind="continuous")]},
            r"targets\[0\] is used as categorical and as continuous",
        ),
        ({"inputs": [np.zeros(400)]}, r"inputs must hold matrices \(n, d\)"),
        ({"targets": [np.zeros(3, dtype=int)]}, r"targets\[0\] must have 400 rows .* got 3"),
        ({"transform": np.cos}, "transform needs transformed_width"),
    ],
)
def test_unfit_arguments_are_named(data, change, message):
    x, classes, _, _ = data
    arguments = {"inputs": [x], "targets": [classes], "networks": [Network(n_outputs=3)], **change}
    with pytest.raises(ValueError, match=message):
        train_networks(
            arguments.pop("inputs"),
            arguments.pop("targets"),
            arguments.pop("networks"),
            **arguments,
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"learning_rate": 0}, "learning_rate must be positive, got 0"),
        ({"init": "zeros"}, "init must be 'torch' or 'glorot', got 'zeros'"),
    ],
)
def test_unfit_training_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        Training(**options)


def test_divergence_is_an_error(data):
    x, _, value, _ = data
    with pytest.raises(ValueError, match="Weights are not finite after epoch 1 at learning_rate"):
        train_networks(
            [x * 1e30],
            [value * 1e30],
            [Network(kind="continuous")],
            training=Training(epochs=1, learning_rate=1e30),
        )


def test_missing_torch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"The MLP probe needs torch.*concept-audit\[torch\]"):
        import_torch("The MLP probe")
