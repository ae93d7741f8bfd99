"""Hand-written gradients against autograd, batched optimisers against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from concept_audit.models.cbm import CBMSpec
from concept_audit.models.cem import CEMSpec
from concept_audit.models.encoders import MLPSpec
from concept_audit.models.heads import build_head
from concept_audit.models.losses import concept_loss, task_loss
from concept_audit.training.batched import (
    BatchedCBM,
    BatchedCEM,
    BatchedHead,
    BatchedSequential,
    ParameterStack,
)
from concept_audit.training.batched_optimisers import build_optimiser
from concept_audit.training.recipe import Phase

M, B, K, CLASSES = 3, 20, 4, 3
LAMBDAS = torch.tensor([0.1, 1.0, 7.0])
SMALL = MLPSpec(widths=(8, 6))
NORMED = MLPSpec(widths=(8, 6), layer_norm=True)


def draw(spec):
    torch.manual_seed(0)
    sizes = {"input_shape": (5,), "n_concepts": K, "n_classes": CLASSES}
    models = [spec.build(**sizes) for _ in range(M)]
    for model in models:  # LayerNorm starts at 1 and 0, where mistakes hide
        for p in model.parameters():
            p.data += 0.1 * torch.randn_like(p)
    x = torch.randn(M, B, 5)
    c = torch.randint(0, 2, (M, B, K)).float()
    y = torch.randint(0, CLASSES, (M, B))
    return models, x, c, y


def compare(stack, models, losses, names=None):
    for i, (model, loss) in enumerate(zip(models, losses, strict=True)):
        loss.backward()
        for name, parameter in model.named_parameters():
            if names is None or name.startswith(names):
                expected = parameter.grad
                scale = float(expected.abs().max()) + 1e-3
                error = float((stack.grad(name)[i] - expected).abs().max())
                # a few hundred float32 roundings
                assert error < 3e-5 * scale, (name, i, error, scale)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "spec",
    [
        CBMSpec(encoder=SMALL),
        CBMSpec(encoder=SMALL, encoding="logit"),
        CBMSpec(encoder=NORMED, encoding="logit", head="mlp"),
        CBMSpec(encoder=SMALL, concept_output="leaky_relu"),
        CBMSpec(encoder=NORMED, encoding="logit", concept_output="leaky_relu"),
    ],
    ids=str,
)
def test_cbm_gradients_are_those_of_autograd(spec, weighted):
    models, x, c, y = draw(spec)
    mask = (torch.rand(M, B, K) < 0.8).float() / 0.8
    pos_weight = torch.tensor([1.0, 2.0, 0.5, 4.0]) if weighted else None
    names = [name for name, _ in models[0].named_parameters()]
    stack = ParameterStack([model.state_dict() for model in models], names)
    network = BatchedCBM(stack, models[0], pos_weight=pos_weight)
    concept, task = network.losses(x, c, nn.functional.one_hot(y, CLASSES).float(), mask)
    network.backward(LAMBDAS)
    losses = []
    for i, model in enumerate(models):
        c_logits = model.concept_activation(model.encoder(x[i])) * mask[i]
        alone_concept = concept_loss(c_logits, c[i], pos_weight)
        alone_task = task_loss(model.head(model.encode(c_logits)), y[i])
        assert torch.allclose(torch.stack([concept[i], task[i]]),
                              torch.stack([alone_concept, alone_task]), atol=1e-6)  # fmt: skip
        losses.append(LAMBDAS[i] * alone_concept + alone_task)
    compare(stack, models, losses)


def test_an_encoder_alone_gets_the_gradient_of_the_concept_loss():
    models, x, c, y = draw(CBMSpec(encoder=SMALL, encoding="hard"))
    names = [name for name, _ in models[0].named_parameters() if name.startswith("encoder.")]
    stack = ParameterStack([model.state_dict() for model in models], names)
    network = BatchedCBM(stack, models[0], encoder_only=True)
    _, task = network.losses(x, c, nn.functional.one_hot(y, CLASSES).float())
    network.backward(torch.ones(M))
    assert task.tolist() == [0, 0, 0]
    losses = [concept_loss(m.encoder(x[i]), c[i]) for i, m in enumerate(models)]
    compare(stack, models, losses, names="encoder.")


@pytest.mark.parametrize("head", ["linear", "mlp"])
@pytest.mark.parametrize("intervened", [False, True])
def test_cem_gradients_are_those_of_autograd(intervened, head):
    spec = CEMSpec(encoder=SMALL, hidden_size=7, embedding_size=3, head=head)
    models, x, c, y = draw(spec)
    hit = torch.rand(M, 1, K) < 0.5 if intervened else None
    names = [name for name, _ in models[0].named_parameters()]
    stack = ParameterStack([model.state_dict() for model in models], names)
    network = BatchedCEM(stack, models[0])
    network.losses(x, c, nn.functional.one_hot(y, CLASSES).float(), None, hit)
    network.backward(LAMBDAS)
    losses = []
    for i, model in enumerate(models):
        output = model(x[i], c[i], None if hit is None else hit[i, 0])
        losses.append(
            LAMBDAS[i] * concept_loss(output.c_logits, c[i]) + task_loss(output.y_logits, y[i])
        )
    compare(stack, models, losses)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_head_gradients_are_those_of_autograd(kind):
    torch.manual_seed(1)
    heads = [nn.ModuleDict({"head": build_head(kind, K, CLASSES)}) for _ in range(M)]
    x, y = torch.randn(M, B, K), torch.randint(0, CLASSES, (M, B))
    names = [name for name, _ in heads[0].named_parameters()]
    stack = ParameterStack([head.state_dict() for head in heads], names)
    network = BatchedHead(stack, heads[0]["head"])
    network.losses(x, x, nn.functional.one_hot(y, CLASSES).float())
    network.backward(torch.ones(M))
    compare(stack, heads, [task_loss(h["head"](x[i]), y[i]) for i, h in enumerate(heads)])


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_optimisers_are_those_of_torch(name, weight_decay):
    phase = Phase("joint", 1, name, 0.05, 0.9, weight_decay)
    torch.manual_seed(0)
    start, lrs = torch.randn(M, 10), [0.05, 0.01, 0.2]
    stack = ParameterStack([{"w": row} for row in start], ["w"])
    batched = build_optimiser(stack, phase)
    alone = [nn.Parameter(row.clone()) for row in start]
    options = {"weight_decay": weight_decay}
    kind = torch.optim.Adam if name == "adam" else torch.optim.SGD
    if name == "sgd":
        options["momentum"] = 0.9
    optimisers = [kind([w], lr=lr, **options) for w, lr in zip(alone, lrs, strict=True)]
    for _ in range(20):
        grads = torch.randn(M, 10)
        stack.grads.copy_(grads)
        batched.step(torch.tensor(lrs)[:, None])
        for w, grad, optimiser in zip(alone, grads, optimisers, strict=True):
            w.grad = grad.clone()
            optimiser.step()
    assert torch.allclose(stack.values, torch.stack(list(alone)).detach(), atol=1e-5)


def test_a_layer_that_cannot_be_batched_is_named():
    template = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    stack = ParameterStack([template.state_dict()], ["0.weight", "0.bias"])
    with pytest.raises(TypeError, match=r"got Tanh at encoder.1. Train this model by itself"):
        BatchedSequential(stack, template, "encoder")
