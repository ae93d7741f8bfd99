"""Judges behind any server that speaks the OpenAI chat-completions form: the path to scale on.

vLLM, SGLang, LMDeploy, llama.cpp and `transformers serve` all do. The server holds the weights; the
client sends images as data URLs, decodes greedily, keeps a bounded number of requests in flight and
retries what failed in transit, never what the judge said.
"""

from __future__ import annotations

import base64
import io
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from concept_audit.council.judges.base import (
    JudgeError,
    JudgeIdentity,
    JudgeImage,
    JudgeRequest,
    JudgeUnreachable,
    Reply,
)

__all__ = ["OpenAIServerJudge"]


class OpenAIServerJudge:
    """Model served under an OpenAI-compatible address.

    Parameters
    ----------
    base_url : address up to `/v1`
    model : name under which the server lists the model
    name : name of the judge; the last part of `model` by default
    revision : commit of the weights that the server was started with
    dtype : of the served weights, for the record
    api_key_env : environment variable with the key; local servers need none
    concurrency : requests in flight
    timeout_s : limit of one request
    max_attempts : tries of one request on 429, 5xx, time-outs and broken connections
    max_wait_s : longest pause between two tries; also caps what the server asks for
    max_side : images with a longer side are scaled down to it
    enable_thinking : sent as a chat-template argument; off in the reference settings
    engine : what serves, for the record; its version is read from the server where it tells
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        revision: str,
        name: str | None = None,
        dtype: str = "bfloat16",
        api_key_env: str = "OPENAI_API_KEY",
        concurrency: int = 8,
        timeout_s: float = 120.0,
        max_attempts: int = 5,
        max_wait_s: float = 30.0,
        max_side: int = 1024,
        enable_thinking: bool = False,
        engine: str = "vllm",
        engine_version: str = "unknown",
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must start with http:// or https://, got {base_url!r}.")
        if concurrency < 1 or max_attempts < 1:
            raise ValueError(
                "concurrency and max_attempts must be at least 1, "
                f"got {concurrency} and {max_attempts}."
            )
        self._base_url = base_url.rstrip("/")
        self._model = model
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts
        self._max_wait_s = max_wait_s
        self._max_side = max_side
        self._thinking = enable_thinking
        self._api_key_env = api_key_env
        self._client_: Any = None
        self._identity = JudgeIdentity(
            name=name or model.rsplit("/", 1)[-1],
            revision=revision,
            engine=f"openai:{engine}",
            engine_version=engine_version,
            dtype=dtype,
            batch_size=concurrency,
            device="server",
            decoding={
                "greedy": True,
                "seed": 0,
                "model": model,
                "enable_thinking": enable_thinking,
                "max_side": max_side,
            },
        )

    @property
    def identity(self) -> JudgeIdentity:
        """Model, revision and settings; `batch_size` is the number of requests in flight."""
        return self._identity

    @property
    def supports_constrained(self) -> bool:
        """The schema is sent as `response_format`."""
        return True

    def _client(self) -> Any:
        if self._client_ is None:
            try:
                from openai import OpenAI
            except ModuleNotFoundError:
                raise JudgeUnreachable(
                    "the openai_server judge needs the package openai. "
                    "Install it with: pip install 'concept-audit[judge]'"
                ) from None
            self._client_ = OpenAI(
                base_url=self._base_url,
                api_key=os.environ.get(self._api_key_env) or "EMPTY",
                timeout=self._timeout_s,
                max_retries=0,  # retries are ours, so that they are bounded and told
            )
        return self._client_

    def check(self) -> None:
        """Ask the server which models it serves.

        Raises
        ------
        JudgeUnreachable  when it does not answer or does not serve the model.
        """
        client = self._client()
        served = self._retrying(lambda: [entry.id for entry in client.models.list().data])
        if self._model not in served:
            raise JudgeUnreachable(
                f"{self._base_url} does not serve {self._model!r}; it serves {', '.join(served)}. "
                "Start the server with that model, or correct `model`."
            )

    def answer(self, requests: Sequence[JudgeRequest]) -> Iterator[tuple[int, Reply]]:
        """Yield replies as they arrive, at most `concurrency` requests in flight.

        Raises
        ------
        JudgeUnreachable  when a request fails after all tries; replies that came were yielded.
        """
        self._client()
        waiting = iter(enumerate(requests))
        running: dict[Future[Reply], int] = {}
        failure: JudgeError | None = None
        with ThreadPoolExecutor(self._concurrency) as pool:
            while True:
                while failure is None and len(running) < self._concurrency:
                    following = next(waiting, None)
                    if following is None:
                        break
                    running[pool.submit(self._ask, following[1])] = following[0]
                if not running:
                    break
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    position = running.pop(future)
                    try:
                        reply = future.result()
                    except JudgeError as error:
                        failure = failure or error  # what is in flight still counts
                        continue
                    yield position, reply
        if failure is not None:
            raise failure

    def _ask(self, request: JudgeRequest) -> Reply:
        client = self._client()
        content: list[dict[str, Any]] = []
        if request.image is not None:
            url = _data_url(request.image, self._max_side)
            content.append({"type": "image_url", "image_url": {"url": url}})
        content.append({"type": "text", "text": request.prompt.user})
        options: dict[str, Any] = {}
        if request.constrained:
            options["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "schema": request.schema, "strict": True},
            }

        def call() -> Reply:
            start = time.perf_counter()
            completion = client.chat.completions.create(
                model=self._model,
                messages=[
                    {"role": "system", "content": request.prompt.system},
                    {"role": "user", "content": content},
                ],
                temperature=0,
                seed=0,
                max_tokens=request.max_new_tokens,
                extra_body={"chat_template_kwargs": {"enable_thinking": self._thinking}},
                **options,
            )
            return self._reply(completion, time.perf_counter() - start)

        return self._retrying(call)

    def _reply(self, completion: Any, seconds: float) -> Reply:
        if getattr(completion, "model", None) != self._model:
            raise JudgeError(
                f"{self._base_url} answered as {getattr(completion, 'model', None)!r}, "
                f"asked was {self._model!r}: its scores would be another judge's."
            )
        choices = completion.choices
        if not choices or choices[0].message is None:
            raise _BrokenReply("the reply holds no message")
        text = choices[0].message.content or ""
        return Reply(text, truncated=choices[0].finish_reason == "length", seconds=seconds)

    def _retrying(self, call: Callable[[], Any]) -> Any:
        """Result of the call; faults of transport and server are tried again, with pauses."""
        import openai
        import tenacity

        transient = (
            openai.APIConnectionError,  # time-outs too
            openai.RateLimitError,
            openai.InternalServerError,
            openai.APIResponseValidationError,
            json.JSONDecodeError,
            _BrokenReply,
        )
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(transient),
            stop=tenacity.stop_after_attempt(self._max_attempts),
            wait=self._pause,
            reraise=True,
        )
        try:
            return retrying(call)
        except transient as error:
            raise JudgeUnreachable(
                f"judge {self._identity.name!r} at {self._base_url} failed {self._max_attempts} "
                f"times, last with {type(error).__name__}: {error} "
                "Run again later: the answers that came are stored."
            ) from error
        except openai.APIStatusError as error:
            raise JudgeError(
                f"judge {self._identity.name!r} at {self._base_url} refused the request with "
                f"status {error.status_code}: {error.message}"
            ) from error

    def _pause(self, state: Any) -> float:
        """Seconds before the next try: doubling, or what the server asks for, within the cap."""
        error = state.outcome.exception() if state.outcome else None
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        asked = str(headers.get("retry-after", ""))
        seconds = float(asked) if asked.replace(".", "", 1).isdigit() else 0.0
        return min(max(seconds, 0.5 * 2 ** (state.attempt_number - 1)), self._max_wait_s)


class _BrokenReply(RuntimeError):
    """A reply whose form is not that of a completion."""


def _data_url(image: JudgeImage, max_side: int) -> str:
    """PNG of the upright RGB image as a data URL; lossless, so every judge sees the same pixels."""
    buffer = io.BytesIO()
    image.open(max_side).save(buffer, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
