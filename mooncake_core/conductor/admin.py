"""The other endpoints: registration of instances, /health, /status, /metrics."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from aiohttp import web
from prometheus_client import exposition

from mooncake_core.conductor.cluster import Member, RegistrationRefused
from mooncake_core.conductor.dispatch import Decision
from mooncake_core.conductor.gateway import Parts
from mooncake_core.conductor.openai_api import ApiError
from mooncake_core.conductor.policy import Refuse
from mooncake_core.messages import Heartbeat, InstanceInfo, Message

M = TypeVar("M", bound=Message)


class Admin:
    """HTTP handlers for operators and instances."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to install."""
        return [
            web.get("/health", self.health),
            web.get("/status", self.status),
            web.get("/metrics", self.metrics),
            web.post("/internal/instances", self.register),
            web.delete("/internal/instances/{instance_id}", self.deregister),
            web.post("/internal/heartbeat", self.heartbeat),
        ]

    async def health(self, request: web.Request) -> web.Response:
        """200 if a request could be served, else 503 with what is missing."""
        missing = [role for role in ("prefill", "decode") if not self._members(role)]
        if missing:
            return web.json_response({"status": "unavailable", "missing": missing}, status=503)
        return web.json_response({"status": "ok"})

    async def metrics(self, request: web.Request) -> web.Response:
        """Everything that is counted, for Prometheus."""
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        data = encode(self._parts.metrics.registry)
        return web.Response(body=data, headers={"Content-Type": content_type})

    async def status(self, request: web.Request) -> web.Response:
        """Who is there, how busy, how well the cache works, and what was decided last."""
        parts = self._parts
        model = parts.cluster.model
        body = {
            "model": parts.model_name,
            "model_info": None if model is None else msgspec.to_builtins(model),
            "members": [
                self._member_body(member)
                for role in ("prefill", "decode")
                for member in self._members(role)
            ],
            "in_flight": parts.dispatcher.in_flight,
            "prompt_tokens": parts.metrics.prompt_tokens,
            "cached_tokens": parts.metrics.cached_tokens,
            "hit_rate": parts.metrics.hit_rate if parts.metrics.prompt_tokens else None,
            "store": await parts.store.stats(),
            "recent": [_decision_body(decision) for decision in parts.dispatcher.recent],
        }
        return web.json_response(body)

    async def register(self, request: web.Request) -> web.Response:
        """Let an instance in: 204, or 409 with what does not fit."""
        info = await _message(request, InstanceInfo)
        outcome = self._parts.cluster.register(info, self._parts.clock())
        if isinstance(outcome, RegistrationRefused):
            raise ApiError(409, outcome.message, code="registration_refused")
        for instance_id in outcome.lost:
            self._parts.dispatcher.lost(instance_id)
        return web.Response(status=204)

    async def deregister(self, request: web.Request) -> web.Response:
        """Forget an instance that says goodbye: 204, known or not."""
        instance_id = request.match_info["instance_id"]
        self._parts.cluster.remove(instance_id)
        self._parts.dispatcher.lost(instance_id)
        return web.Response(status=204)

    async def heartbeat(self, request: web.Request) -> web.Response:
        """204, or 410: unknown here or events were missed, register (again)."""
        beat = await _message(request, Heartbeat)
        try:
            is_known = self._parts.cluster.heartbeat(beat, self._parts.clock())
        except ValueError as error:
            raise ApiError(400, f"events: {error}") from error
        return web.Response(status=204 if is_known else 410)

    def _members(self, role: Any) -> list[Member]:
        return self._parts.cluster.members(role, self._parts.clock())

    def _member_body(self, member: Member) -> dict[str, Any]:
        info = member.info
        cluster = self._parts.cluster
        body = {
            "instance_id": info.instance_id,
            "role": info.role,
            "url": info.url,
            "host_id": info.host_id,
            "pid": info.pid,
            "pages": info.pages,
            "max_batch": info.max_batch,
            "silent_s": round(self._parts.clock() - member.seen_s, 3),
            "load": msgspec.to_builtins(member.load),
        }
        if info.role == "prefill":
            body["blocks"] = cluster.block_count(info.instance_id)
        return body


def _decision_body(decision: Decision) -> dict[str, Any]:
    body: dict[str, Any] = {
        "request_id": decision.request_id,
        "attempt": decision.attempt,
        "prompt_tokens": decision.prompt_tokens,
    }
    outcome = decision.outcome
    if isinstance(outcome, Refuse):
        return {**body, "refused": outcome.reason, "message": outcome.message}
    plan = outcome.prefill
    return {
        **body,
        "prefill": plan.instance.instance_id,
        "decode": outcome.decode.instance_id,
        "local_tokens": plan.local_tokens,
        "fetch_tokens": plan.fetch_tokens,
        "ttft_s_estimated": round(plan.ttft_s, 4),
        "queue_s_estimated": round(plan.queue_s, 4),
        "transfer_s_estimated": round(plan.transfer_s, 6),
        "prefill_s_estimated": round(plan.prefill_s, 4),
    }


async def _message(request: web.Request, kind: type[M]) -> M:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.MsgspecError as error:
        raise ApiError(400, f"{kind.__name__}: {error}") from error
