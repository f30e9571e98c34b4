"""The OpenAI-compatible endpoints: /v1/models, /v1/chat/completions, /v1/completions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass, field

import msgspec
from aiohttp import web

from mooncake_core.clock import Clock
from mooncake_core.conductor.answer import AnswerText
from mooncake_core.conductor.cluster import Cluster
from mooncake_core.conductor.dispatch import Dispatcher, Job, Update
from mooncake_core.conductor.metrics import ConductorMetrics
from mooncake_core.conductor.openai_api import (
    AnswerForm,
    ApiError,
    ChatBody,
    CompletionBody,
    Generation,
    Usage,
    generation,
    read_chat,
    read_completion,
)
from mooncake_core.conductor.policy import Choice
from mooncake_core.conductor.prompt import answer_tokens, read_prompt
from mooncake_core.conductor.request import Begin, Done, Emit, GiveUp
from mooncake_core.conductor.store_lookup import StoreLookup
from mooncake_core.conductor.waiting import within
from mooncake_core.config.tables import ConductorConfig
from mooncake_core.messages import PrefillResult, Sampling
from mooncake_core.tokenizer import Tokenizer

log = logging.getLogger(__name__)

_REFUSALS = {"no_prefill": 503, "no_decode": 503, "too_large": 400}
"""Of the policy's reasons; the others are 429."""


@dataclass
class Visit:
    """One HTTP request on its way through the handlers."""

    id: str
    started_s: float
    """When its head had arrived."""
    outcome: str = ""
    """How it ended, where the status does not say it."""


VISIT: ContextVar[Visit] = ContextVar("visit")
"""Set for every request before its handler runs."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What the HTTP handlers stand on."""

    config: ConductorConfig
    model_name: str
    tokenizer: Tokenizer
    cluster: Cluster
    dispatcher: Dispatcher
    store: StoreLookup
    metrics: ConductorMetrics
    clock: Clock


@dataclass
class _Answer:
    """One answer while it grows."""

    text: AnswerText
    prompt_tokens: int
    started_s: float
    completion_tokens: int = 0
    last_token_s: float = 0.0
    reason: str = ""
    cached_tokens: int = 0

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
        )


@dataclass(frozen=True, kw_only=True)
class _Ready:
    """A request that has been read and may be run."""

    job: Job
    form: AnswerForm
    wanted: Generation
    answer: _Answer = field(repr=False)


class Gateway:
    """HTTP handlers of the public endpoints."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._created_s = int(time.time())

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to install."""
        return [
            web.get("/v1/models", self.models),
            web.get("/v1/models/{model:.+}", self.model),
            web.post("/v1/chat/completions", self.chat, expect_handler=self._expect),
            web.post("/v1/completions", self.completions, expect_handler=self._expect),
        ]

    async def models(self, request: web.Request) -> web.Response:
        """List the one model."""
        return web.json_response({"object": "list", "data": [self._model_body()]})

    async def model(self, request: web.Request) -> web.Response:
        """Describe the one model."""
        self._check_model(request.match_info["model"])
        return web.json_response(self._model_body())

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer a chat."""
        return await self._serve(request, read_chat(await self._body(request)))

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Continue a text."""
        return await self._serve(request, read_completion(await self._body(request)))

    def _model_body(self) -> dict[str, object]:
        body: dict[str, object] = {
            "id": self._parts.model_name,
            "object": "model",
            "created": self._created_s,
            "owned_by": "mooncake",
        }
        model = self._parts.cluster.model
        return body if model is None else {**body, "context_length": model.context_tokens}

    def _check_model(self, name: str) -> None:
        served = self._parts.model_name
        if name != served:
            raise ApiError(
                404,
                f"the model {name!r} does not exist here; served is {served!r}",
                param="model",
                code="model_not_found",
            )

    async def _expect(self, request: web.Request) -> web.Response | None:
        """Refuse a body that is too large before it is sent."""
        try:
            self._check_length(request.content_length or 0)
        except ApiError as error:
            return web.json_response(error.body(), status=error.status)
        if request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return None

    def _check_length(self, size_bytes: int) -> None:
        most = self._parts.config.max_body_bytes
        if size_bytes > most:
            raise ApiError(413, f"the body has {size_bytes} bytes; max_body allows {most}")

    async def _body(self, request: web.Request) -> bytes:
        self._check_length(request.content_length or 0)
        try:
            return await within(self._parts.config.request_timeout_s, request.read())
        except asyncio.TimeoutError as error:
            raise ApiError(408, "the body did not arrive in time") from error
        except web.HTTPRequestEntityTooLarge as error:
            most = self._parts.config.max_body_bytes
            raise ApiError(413, f"the body is larger than max_body, {most} bytes") from error

    async def _serve(
        self, request: web.Request, body: ChatBody | CompletionBody
    ) -> web.StreamResponse:
        ready = await self._prepare(request, body)
        deadline_s = ready.job.deadline_s - self._parts.clock()
        # A client that stops reading must not hold its pages for ever.
        abort = asyncio.get_running_loop().call_later(deadline_s + 1.0, _abort, request)
        try:
            async with contextlib.aclosing(self._parts.dispatcher.run(ready.job)) as updates:
                begin = await anext(updates)
                if isinstance(begin, GiveUp):
                    raise _error(begin)
                assert isinstance(begin, Begin), begin
                self._begun(ready.answer, begin)
                pieces = self._pieces(ready, updates)
                if ready.wanted.is_stream:
                    return await self._stream(request, ready, _headers(begin), pieces)
                text = "".join([piece async for piece in pieces])
                answer = ready.answer
                return web.json_response(
                    ready.form.whole(text, answer.reason, answer.usage), headers=_headers(begin)
                )
        finally:
            abort.cancel()

    async def _prepare(self, request: web.Request, body: ChatBody | CompletionBody) -> _Ready:
        """Read all of a request, up to what the store has of its prompt."""
        parts, visit = self._parts, VISIT.get()
        self._check_model(body.model)
        wanted = generation(body)
        model = parts.cluster.model
        if model is None:
            raise ApiError(503, "no instance is up", code="no_prefill", retry_after_s=1.0)
        salt = _salt(request.headers.get("X-Tenant", ""), body.cache_salt or "")
        prompt = await asyncio.to_thread(read_prompt, body, parts.tokenizer, model, salt)
        max_tokens = answer_tokens(
            wanted.max_tokens, parts.config.default_max_tokens, prompt, model
        )
        stop_ids = parts.tokenizer.eos_token_ids
        answer = AnswerText(parts.tokenizer.stream(), wanted.stops, stop_ids)
        return _Ready(
            job=Job(
                request_id=visit.id,
                tokens=prompt.tokens,
                names=prompt.names,
                salt=salt,
                sampling=_sampling(body),
                max_tokens=max_tokens,
                stop_token_ids=stop_ids,
                store_blocks=await parts.store.match(prompt.names),
                avoid=_avoid(request),
                deadline_s=visit.started_s + parts.config.request_timeout_s,
            ),
            form=AnswerForm(
                is_chat=isinstance(body, ChatBody),
                request_id=visit.id,
                model=body.model,
                created_s=int(time.time()),
                includes_usage=wanted.includes_usage,
            ),
            wanted=wanted,
            answer=_Answer(answer, len(prompt.tokens), visit.started_s),
        )

    def _begun(self, answer: _Answer, begin: Begin) -> None:
        metrics, now_s = self._parts.metrics, self._parts.clock()
        answer.cached_tokens = begin.result.cached_tokens
        answer.last_token_s = now_s
        ttft_s = now_s - answer.started_s
        metrics.ttft_s.observe(ttft_s)
        metrics.ttft_error_s.observe(ttft_s - begin.choice.prefill.ttft_s)
        metrics.prefilled(answer.prompt_tokens, begin.result)

    async def _pieces(
        self, ready: _Ready, updates: AsyncIterator[Update]
    ) -> AsyncGenerator[str, None]:
        """Yield the answer's text; afterwards its reason and usage are known.

        Raises:
            ApiError: the request failed on the way.
        """
        answer = ready.answer
        async for update in updates:
            match update:
                case Emit():
                    self._count_token(answer)
                    yield answer.text.push(update.token_id)
                    if answer.text.is_stopped:
                        answer.reason = "stop"
                        return
                case Done():
                    answer.reason = update.reason
                    yield answer.text.finish()
                    return
                case GiveUp():
                    raise _error(update)
                case Begin():
                    raise AssertionError(update)

    def _count_token(self, answer: _Answer) -> None:
        metrics, now_s = self._parts.metrics, self._parts.clock()
        metrics.completion_tokens.inc()
        if answer.completion_tokens:
            metrics.tbt_s.observe(now_s - answer.last_token_s)
        answer.last_token_s = now_s
        answer.completion_tokens += 1

    async def _stream(
        self,
        request: web.Request,
        ready: _Ready,
        headers: dict[str, str],
        pieces: AsyncIterator[str],
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                **headers,
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "x-request-id": VISIT.get().id,
            }
        )
        await response.prepare(request)
        try:
            opening = ready.form.opening()
            if opening is not None:
                await response.write(_event(opening))
            async for piece in pieces:
                if piece:
                    await response.write(_event(ready.form.piece(piece)))
            await response.write(_event(ready.form.closing(ready.answer.reason)))
            if ready.wanted.includes_usage:
                await response.write(_event(ready.form.usage(ready.answer.usage)))
            await response.write(b"data: [DONE]\n\n")
        except ApiError as error:
            # The status has been sent, so the error is the last event and [DONE] does not come.
            VISIT.get().outcome = error.code or "failed"
            await response.write(_event(error.body()))
        await response.write_eof()
        return response


def _event(body: object) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        log.warning("request %s: its client reads too slowly; closing", VISIT.get().id)
        request.transport.abort()


def _headers(begin: Begin) -> dict[str, str]:
    choice: Choice = begin.choice
    result: PrefillResult = begin.result
    return {
        "x-mooncake-prefill": choice.prefill.instance.instance_id,
        "x-mooncake-decode": choice.decode.instance_id,
        "x-mooncake-attempts": str(result.attempt + 1),
    }


def _avoid(request: web.Request) -> frozenset[str]:
    text = request.headers.get("x-mooncake-avoid-prefill", "")
    return frozenset(item for part in text.split(",") if (item := part.strip()))


def _salt(tenant: str, user_salt: str) -> str:
    """Return the salt of block names; no user's salt reaches into another tenant's names."""
    return f"{len(tenant)}:{tenant}{user_salt}" if tenant or user_salt else ""


def _sampling(body: ChatBody | CompletionBody) -> Sampling:
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=max(0, body.top_k or 0),
        seed=secrets.randbits(63) if body.seed is None else body.seed & ((1 << 63) - 1),
    )


def _error(give_up: GiveUp) -> ApiError:
    """Return what a user is told about a request that ended badly."""
    refuse = give_up.refuse
    if refuse is not None:
        status = _REFUSALS.get(refuse.reason, 429)
        code = "context_length_exceeded" if status == 400 else refuse.reason
        retry_after_s = refuse.retry_after_s or None
        return ApiError(status, refuse.message, code=code, retry_after_s=retry_after_s)
    if give_up.kind == "timeout":
        return ApiError(504, give_up.message, code="timeout")
    return ApiError(503, give_up.message, code="instance_failed", retry_after_s=1.0)
