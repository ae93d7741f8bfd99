"""Judges that run in this process through Hugging Face transformers.

Reference settings: greedy decoding, thinking off, one request at a time. Batched greedy decoding
can change an answer in half precision, so larger batches are accepted in float32 only.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from concept_audit.council.judges.base import (
    JudgeError,
    JudgeIdentity,
    JudgeRequest,
    JudgeUnreachable,
    Reply,
)
from concept_audit.council.judges.loading import silent_loading

__all__ = ["TransformersJudge"]

_REASONING_TOKENS = 120  # length of the rationale under constrained decoding


class TransformersJudge:
    """Vision-language model reached by `AutoModelForImageTextToText`.

    Parameters
    ----------
    model : Hub id or local folder; for InternVL the repository whose name ends in `-HF`
    name : name of the judge; the last part of `model` by default
    revision : commit of the Hub repository; required for a Hub id, since weights may change
    dtype : `bfloat16` or `float32`
    batch_size : requests decoded together; larger than 1 needs float32
    device : `auto` takes a GPU where there is one
    max_side : images with a longer side are scaled down to it, which bounds memory
    enable_thinking : passed to the chat template; off in the reference settings
    """

    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        revision: str | None = None,
        dtype: str = "bfloat16",
        batch_size: int = 1,
        device: str = "auto",
        max_side: int = 1024,
        enable_thinking: bool = False,
    ) -> None:
        if batch_size < 1 or (batch_size > 1 and dtype != "float32"):
            raise ValueError(
                f"batch_size must be 1 with dtype {dtype}, got {batch_size}: batched greedy "
                "decoding is not repeatable in half precision. "
                "Use batch_size=1, or dtype='float32'."
            )
        folder = Path(model)
        if revision is None and not folder.is_dir():
            raise ValueError(
                f"revision must be given for the Hub model {model!r}: weights under one name may "
                "change. Take the commit hash from the model's page."
            )
        self._model_id = model
        self._name = name or folder.name
        self._revision = revision or f"local-{_folder_digest(folder)}"
        self._hub_revision = revision
        self._dtype = dtype
        self._batch_size = batch_size
        self._device = device
        self._max_side = max_side
        self._thinking = enable_thinking
        self._loaded: tuple[Any, Any] | None = None
        self._system_role = True
        self._masks: tuple[Any, list[int]] | None = None

    @property
    def identity(self) -> JudgeIdentity:
        """Model, revision, versions and decoding settings."""
        return JudgeIdentity(
            name=self._name,
            revision=self._revision,
            engine="transformers",
            engine_version=f"{_version('transformers')}+torch{_version('torch')}",
            dtype=self._dtype,
            batch_size=self._batch_size,
            device=self._chosen_device(),
            decoding={
                "greedy": True,
                "enable_thinking": self._thinking,
                "max_side": self._max_side,
            },
        )

    @property
    def supports_constrained(self) -> bool:
        """A reply can be decoded within the schema."""
        return True

    def _chosen_device(self) -> str:
        if self._device != "auto" or find_spec("torch") is None:
            return "cpu" if self._device == "auto" else self._device
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    def check(self) -> None:
        """Load processor and model.

        Raises
        ------
        JudgeUnreachable  when transformers or the weights are missing.
        """
        if self._loaded is not None:
            return
        try:
            import torch
            from transformers import AutoModelForImageTextToText, AutoProcessor
        except ModuleNotFoundError as error:
            raise JudgeUnreachable(
                f"judge {self._name!r} needs the package {error.name}. "
                "Install it with: pip install 'concept-audit[torch,judge]'"
            ) from None
        options: dict[str, Any] = (
            {} if self._hub_revision is None else {"revision": self._hub_revision}
        )
        try:
            with silent_loading():
                processor = AutoProcessor.from_pretrained(self._model_id, **options)
                model = AutoModelForImageTextToText.from_pretrained(
                    self._model_id, dtype=getattr(torch, self._dtype), **options
                )
        except (OSError, ValueError) as error:
            raise JudgeUnreachable(
                f"judge {self._name!r} could not be loaded from {self._model_id!r}: {error} "
                "Give a folder that holds the model, or download it while online."
            ) from error
        processor.tokenizer.padding_side = "left"
        for setting in ("temperature", "top_p", "top_k"):  # published configs often sample
            setattr(model.generation_config, setting, None)
        model.generation_config.do_sample = False
        if model.generation_config.pad_token_id is None:
            model.generation_config.pad_token_id = processor.tokenizer.pad_token_id
        module: Any = model
        self._loaded = (processor, module.to(self._chosen_device()).eval())
        self._system_role = self._accepts_system_role()

    def release(self) -> None:
        """Drop the model, so that the next judge finds its memory free."""
        import torch

        self._loaded = None
        self._masks = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _accepts_system_role(self) -> bool:
        """Whether the chat template shows a system turn; templates may raise or drop it."""
        from jinja2 import TemplateError

        processor, _ = self._parts()
        text = {"type": "text", "text": "user words"}
        messages = [
            {"role": "system", "content": [{"type": "text", "text": "system words"}]},
            {"role": "user", "content": [text]},
        ]
        try:
            return "system words" in processor.apply_chat_template(messages, tokenize=False)
        except TemplateError:
            return False

    def _parts(self) -> tuple[Any, Any]:
        self.check()
        assert self._loaded is not None
        return self._loaded

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[tuple[int, Reply]]:
        """Yield greedy replies, batch by batch; constrained requests one by one."""
        plain = [i for i, request in enumerate(requests) if not request.constrained]
        for start in range(0, len(plain), self._batch_size):
            chosen = plain[start : start + self._batch_size]
            replies = self._generate([requests[i] for i in chosen])
            yield from zip(chosen, replies, strict=True)
        for i, request in enumerate(requests):
            if request.constrained:
                yield i, self._generate_constrained(request)

    def _messages(self, request: JudgeRequest) -> list[dict[str, Any]]:
        system, user = request.prompt.system, request.prompt.user
        content: list[dict[str, Any]] = []
        if request.image is not None:
            content.append({"type": "image", "image": request.image.open(self._max_side)})
        if not self._system_role:
            content.append({"type": "text", "text": f"[System Role]\n{system}\n\n{user}"})
            return [{"role": "user", "content": content}]
        content.append({"type": "text", "text": user})
        return [
            {"role": "system", "content": [{"type": "text", "text": system}]},
            {"role": "user", "content": content},
        ]

    def _inputs(self, requests: Sequence[JudgeRequest]) -> Any:
        processor, model = self._parts()
        inputs = processor.apply_chat_template(
            [self._messages(request) for request in requests],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            processor_kwargs={"padding": True},
            enable_thinking=self._thinking,
        ).to(model.device)
        for name, value in inputs.items():
            if value.is_floating_point():
                inputs[name] = value.to(model.dtype)
        return inputs

    def _generate(self, requests: Sequence[JudgeRequest]) -> list[Reply]:
        import torch

        processor, model = self._parts()
        start = time.perf_counter()
        inputs = self._inputs(requests)
        budget = max(request.max_new_tokens for request in requests)
        with torch.inference_mode():
            output = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=budget)
        new = output[:, inputs["input_ids"].shape[1] :]
        texts = processor.batch_decode(new, skip_special_tokens=True)
        ends = torch.tensor(_end_tokens(model), device=new.device)
        finished = torch.isin(new, ends).any(dim=1).tolist()
        seconds = (time.perf_counter() - start) / len(requests)
        return [
            Reply(text, truncated=not done, seconds=seconds)
            for text, done in zip(texts, finished, strict=True)
        ]

    def _generate_constrained(self, request: JudgeRequest) -> Reply:
        """Decode within the schema: the rationale freely, the answer among its allowed values.

        The fixed parts of the JSON object are given to the model, the rationale is greedy among
        printable tokens up to the closing quote, the value is the most probable allowed one.
        """
        import torch

        processor, model = self._parts()
        tokenizer = processor.tokenizer
        start = time.perf_counter()
        inputs = self._inputs([request])
        answer_key, allowed = _allowed_values(request)
        opening = _encode(tokenizer, '{"reasoning": "')
        mask, quotes = self._text_mask()
        with torch.inference_mode():
            opened = _extended(inputs, opening)
            output = model.generate(
                **opened,
                do_sample=False,
                num_beams=1,
                max_new_tokens=min(request.max_new_tokens, _REASONING_TOKENS),
                logits_processor=[_Within(mask)],
                eos_token_id=quotes,
            )
            rationale = output[0, opened["input_ids"].shape[1] :].tolist()
            rationale = [token for token in rationale if token not in quotes]
            middle = _encode(tokenizer, f'", "{answer_key}": ')
            prefix = opening + rationale + middle
            scores = _log_probabilities(
                model, inputs, prefix, [_encode(tokenizer, v) for v in allowed]
            )
        best = allowed[max(range(len(allowed)), key=lambda i: scores[i])]
        reasoning = tokenizer.decode(rationale, skip_special_tokens=True)
        text = json.dumps(
            {"reasoning": reasoning, answer_key: json.loads(best)}, ensure_ascii=False
        )
        return Reply(text, truncated=False, seconds=time.perf_counter() - start)

    def _text_mask(self) -> tuple[Any, list[int]]:
        """Tokens of printable text without quotes and backslashes, and those that are a quote."""
        import torch

        if self._masks is None:
            processor, model = self._parts()
            tokenizer = processor.tokenizer
            size = model.get_output_embeddings().weight.shape[0]  # may exceed the tokenizer's size
            special = set(tokenizer.all_special_ids)
            allowed = torch.zeros(size, dtype=torch.bool)
            quotes = []
            for token in range(min(size, len(tokenizer))):
                text = tokenizer.decode([token])
                if token in special or not text:
                    continue
                if text == '"':
                    quotes.append(token)
                    allowed[token] = True
                elif text.isprintable() and not set(text) & set('"\\\ufffd'):
                    allowed[token] = True
            if not quotes:
                raise JudgeError(
                    f"judge {self._name!r} has no token for a double quote: "
                    "constrained decoding is not possible with this tokenizer."
                )
            self._masks = (allowed.to(model.device), quotes)
        return self._masks


class _Within:
    """Logits processor that leaves only allowed tokens."""

    def __init__(self, allowed: Any) -> None:
        self._allowed = allowed

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return scores.masked_fill(~self._allowed, float("-inf"))


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _log_probabilities(
    model: Any, inputs: Any, prefix: Sequence[int], values: Sequence[Sequence[int]]
) -> list[float]:
    """Log-probability of each value after the prefix; single-token values share one pass."""
    import torch

    if all(len(tokens) == 1 for tokens in values):
        logits = model(**_extended(inputs, prefix), logits_to_keep=1).logits[0, -1]
        return [float(logits[tokens[0]]) for tokens in values]
    scores = []
    for tokens in values:
        kept = len(tokens) + 1
        logits = model(**_extended(inputs, [*prefix, *tokens]), logits_to_keep=kept).logits[0]
        steps = logits[-kept:-1].float().log_softmax(dim=-1)
        scores.append(float(steps[torch.arange(len(tokens)), torch.tensor(tokens)].sum()))
    return scores


def _allowed_values(request: JudgeRequest) -> tuple[str, list[str]]:
    """Key of the answer and its allowed values as JSON texts."""
    properties = request.schema["properties"]
    key = next(name for name in properties if name != "reasoning")
    rule = properties[key]
    if "enum" in rule:
        return key, [json.dumps(value) for value in rule["enum"]]
    return key, [str(value) for value in range(rule["minimum"], rule["maximum"] + 1)]


def _extended(inputs: Any, tokens: Sequence[int]) -> dict[str, Any]:
    """Model inputs with text tokens appended to every per-token tensor."""
    import torch

    shape = inputs["input_ids"].shape
    added = torch.tensor([list(tokens)], device=inputs["input_ids"].device)
    result = {}
    for name, value in inputs.items():
        if value.shape == shape:
            extra = added if name == "input_ids" else torch.zeros_like(added)
            if name == "attention_mask":
                extra = torch.ones_like(added)
            value = torch.cat([value, extra.to(value.dtype)], dim=1)
        result[name] = value
    return result


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"  # check() says what to install


def _end_tokens(model: Any) -> list[int]:
    end = model.generation_config.eos_token_id
    if end is None:
        return []
    return list(end) if isinstance(end, list | tuple) else [int(end)]


def _folder_digest(folder: Path) -> str:
    """Identity of a local model: names and sizes of all files, content of the small ones."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            size = path.stat().st_size
            digest.update(f"{path.relative_to(folder)}\0{size}\0".encode())
            if size < 50_000_000:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
