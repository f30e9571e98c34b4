"""What the conductor, prefill and decode instances say to each other. Pure.

All of it is JSON over HTTP, with these structs as the schema; unknown fields are errors. Streams
are one JSON value a line. `request_id` is unique in the cluster; `attempt` counts the tries of one
request at the prefill stage, from 0, and is echoed by every later message about that try, so that
whatever arrives from an earlier try is recognised and dropped.

    conductor ── DecodeRequest ──► decode        opens a stream of DecodeEvents: Reserved first
    conductor ── PrefillRequest ─► prefill       carries the Reserved that decode gave
    prefill   ── Landed ─────────► decode        every layer is in decode's pages
    prefill   ── Released ───────► decode        gave up: no write is or will be in flight
                                                 (from the conductor: prefill was never asked)
    prefill   ── PrefillResult ──► conductor     the answer to PrefillRequest
    decode    ── Token, Finished | Failed ─► conductor

An instance announces itself with InstanceInfo and then sends a Heartbeat every second.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from mooncake_core.blocks import KvIdentity

NonNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Role = Literal["prefill", "decode"]


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all messages. Each says kw_only itself: it is not inherited."""


class Sampling(Message, frozen=True, kw_only=True):
    """How the next token is chosen. temperature 0 is greedy."""

    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: NonNegative = 0
    """0 keeps all."""
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0


class ModelInfo(Message, frozen=True, kw_only=True):
    """The model that an instance serves, as far as others must agree on it."""

    name: str
    weights_digest: str
    dtype: str
    layout: str
    kernel_class: str
    block_tokens: Positive
    page_tokens: Positive
    layers: Positive
    kv_bytes_per_token: Positive
    context_tokens: Positive
    vocab: Positive


def kv_identity(model: ModelInfo) -> KvIdentity:
    """Return what the block names of `model` are keyed by; every process names blocks by this."""
    return KvIdentity(
        weights_digest=model.weights_digest,
        dtype=model.dtype,
        layout=model.layout,
        block_tokens=model.block_tokens,
        kernel_class=model.kernel_class,
    )


class InstanceInfo(Message, frozen=True, kw_only=True):
    """POST /internal/instances: an instance is there, or has a new identity."""

    instance_id: str
    """Random; a restarted process is a new instance."""
    role: Role
    url: str
    """Base URL of its HTTP server."""
    host_id: str
    """Equal iff two processes share memory segments."""
    peer_id: str
    """Hex identity of its transfer engine; changes after it was fenced."""
    model: ModelInfo
    pages: Positive
    max_batch: Positive
    pid: Positive
    prefill_tokens_per_s: Annotated[float, Meta(ge=0)] = 0.0
    """Calibrated at start-up; 0 for a decode instance."""


class InstanceLoad(Message, frozen=True, kw_only=True):
    """How busy an instance is, as it sees itself."""

    queued_requests: NonNegative = 0
    queued_tokens: NonNegative = 0
    """Prompt tokens still to be computed, cached ones left out."""
    running: NonNegative = 0
    """Prefill: 0 or 1; decode: sequences in the batch."""
    free_pages: NonNegative = 0
    reserved_pages: NonNegative = 0
    quarantined_pages: NonNegative = 0
    tbt_s: Annotated[float, Meta(ge=0)] = 0.0
    """Decode: mean of the last steps; 0 while idle."""
    prefill_tokens_per_s: Annotated[float, Meta(ge=0)] = 0.0


class KvEvents(Message, frozen=True, kw_only=True):
    """Blocks that entered or left an instance's own pages, in hex, since the last heartbeat."""

    seq: NonNegative
    """Counts KvEvents of this instance from 0; 0 also means: forget all you knew."""
    stored: list[str] = []
    removed: list[str] = []


class Heartbeat(Message, frozen=True, kw_only=True):
    """POST /internal/heartbeat. The answer is 204, or 410: unknown here, register (again)."""

    instance_id: str
    load: InstanceLoad
    events: KvEvents | None = None
    """None when nothing changed."""


class DecodeRequest(Message, frozen=True, kw_only=True):
    """POST /v1/decode on a decode instance. Closing the connection cancels."""

    request_id: str
    prompt_tokens: Positive
    max_tokens: Positive
    """Tokens to write, the first one (prefill's) included."""
    sampling: Sampling
    stop_token_ids: list[int]
    writer_peer_id: str
    """The one transfer engine that may write the reserved pages."""
    attempt: NonNegative = 0
    deadline_s: Annotated[float, Meta(gt=0)]
    """From now until the pages must have landed."""


class Reserved(Message, tag="reserved", frozen=True, kw_only=True):
    """Where prefill writes: token t of the prompt goes to slot t % page_tokens of its page.

    That page is pages[t // page_tokens].
    The KV of layer l, K (0) or V (1), page p starts at byte
    ((l * 2 + kv) * pool_pages + p) * page_bytes of the segment.
    """

    request_id: str
    attempt: NonNegative
    url: str
    """Of the decode instance, for Landed and Released."""
    endpoint: str
    """Of its transfer engine."""
    segment_id: NonNegative
    pool_pages: Positive
    page_bytes: Positive
    """Of one page of K or V of one layer."""
    pages: list[int]


class Token(Message, tag="token", frozen=True, kw_only=True):
    """One token written by decode; a stop token is sent and counted as well."""

    token_id: NonNegative
    index: Positive
    """Of the answer; 0 is prefill's token and is never sent by decode."""


class Finished(Message, tag="finished", frozen=True, kw_only=True):
    """The stream ended well."""

    reason: Literal["stop", "length"]
    completion_tokens: Positive


class Failed(Message, tag="failed", frozen=True, kw_only=True):
    """The stream ended badly. Also the body of every error answer of an instance."""

    error: str
    retryable: bool
    kind: str = ""
    """Class name of the MooncakeError."""


DecodeEvent = Reserved | Token | Finished | Failed


class PrefillRequest(Message, frozen=True, kw_only=True):
    """POST /v1/prefill on a prefill instance. Closing the connection cancels."""

    request_id: str
    attempt: NonNegative = 0
    tokens: list[int]
    """The whole prompt."""
    salt: str = ""
    """Of the tenant; a part of the block names."""
    sampling: Sampling
    use_store: bool = True
    """False: computing what is missing locally was found cheaper than loading it."""
    target: Reserved
    writer_peer_id: str
    """Refused unless it is this instance's current one."""
    deadline_s: Annotated[float, Meta(gt=0)]


class PrefillResult(Message, frozen=True, kw_only=True):
    """The first token, and what it cost."""

    request_id: str
    attempt: NonNegative
    first_token: NonNegative
    cached_tokens: NonNegative
    """Prompt tokens whose KV was not computed here: local_tokens + store_tokens."""
    local_tokens: NonNegative
    """Found in this instance's own pages."""
    store_tokens: NonNegative
    """Loaded from the store."""
    queue_s: float
    load_s: float
    """Sum over layers of the time that compute waited for loads."""
    compute_s: float
    send_s: float
    """From the end of compute until decode had confirmed Landed."""


class Landed(Message, frozen=True, kw_only=True):
    """POST /v1/landed on a decode instance: every write of this attempt has completed."""

    request_id: str
    attempt: NonNegative
    first_token: NonNegative
    checksums: list[int]
    """CRC-32C a layer, over K then V of the prompt's tokens in order, without page padding."""


class Released(Message, frozen=True, kw_only=True):
    """POST /v1/released on a decode instance: no write of this attempt is or will be in flight.

    Prefill says so whenever it refuses or ends an attempt without Landed. The conductor says so
    when it gives an attempt up after Reserved without having begun to send the PrefillRequest:
    decode would fence the writer otherwise, a moment after its stream was closed.
    """

    request_id: str
    attempt: NonNegative
