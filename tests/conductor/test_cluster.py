"""The instance table: registration, time to live, counting of own decisions."""

from typing import Any

import pytest

from mooncake_core.conductor.cluster import Cluster, Registered, RegistrationRefused
from mooncake_core.conductor.policy import Ask, Choice, choose
from mooncake_core.config.tables import SloConfig
from mooncake_core.messages import Heartbeat, InstanceLoad, KvEvents, PrefillResult
from tests.conductor.views import info

NAMES = [bytes([i]) * 16 for i in range(4)]


def empty() -> Cluster:
    return Cluster(slo=SloConfig(), balancing_threshold=2.0, instance_ttl_s=3.0, tokenizer_vocab=99)


def cluster_of(*ids: str) -> Cluster:
    cluster = empty()
    for name in ids:
        role = "prefill" if name.startswith("p") else "decode"
        assert isinstance(cluster.register(info(name, role), 0.0), Registered)
    return cluster


def beat(name: str, events: KvEvents | None = None, **load: Any) -> Heartbeat:
    return Heartbeat(instance_id=name, load=InstanceLoad(**load), events=events)


def place(cluster: Cluster, request_id: str, now_s: float = 0.0, **ask: Any) -> Choice:
    request = Ask(**{"prompt_tokens": 1000, "max_tokens": 24, **ask})
    choice = choose(cluster.view(now_s), request, 0.0)
    assert isinstance(choice, Choice), choice
    cluster.assign((request_id, 0), choice, now_s)
    return choice


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("block_tokens", 128),
        ("weights_digest", "cd"),
        ("dtype", "bfloat16"),
        ("layout", "other"),
        ("context_tokens", 1024),
    ],
)
def test_an_instance_of_another_model_is_refused_with_both_values(
    role: str, field: str, value: Any
) -> None:
    cluster = cluster_of("p0")
    refused = cluster.register(info("x", role, model={field: value}), 0.0)
    assert isinstance(refused, RegistrationRefused)
    mine = getattr(info("p0").model, field)
    assert f"model.{field}" in refused.message
    assert repr(value) in refused.message and repr(mine) in refused.message
    assert len(cluster.view(0.0).prefills) == 1


def test_prefill_instances_with_other_kernels_are_refused_because_they_share_blocks() -> None:
    refused = cluster_of("p0", "d0").register(info("p1", model={"kernel_class": "other"}), 0.0)
    assert isinstance(refused, RegistrationRefused)
    assert "model.kernel_class" in refused.message and "'other'" in refused.message


@pytest.mark.parametrize("order", [("p0", "d0"), ("d0", "p0")])
def test_decode_may_have_other_kernels_and_blocks_are_named_by_those_of_prefill(
    order: tuple[str, str],
) -> None:
    cluster = empty()
    infos = {"p0": info("p0"), "d0": info("d0", "decode", model={"kernel_class": "other"})}
    for name in order:
        assert isinstance(cluster.register(infos[name], 0.0), Registered)
    assert place(cluster, "r").decode.instance_id == "d0"
    assert cluster.model == infos["p0"].model
    assert isinstance(cluster.register(info("d1", "decode"), 0.0), Registered)


def test_a_model_with_fewer_tokens_than_the_tokenizer_is_refused() -> None:
    refused = empty().register(info("p0", model={"vocab": 98}), 0.0)
    assert isinstance(refused, RegistrationRefused)
    assert "98" in refused.message and "99" in refused.message


def test_the_model_may_change_when_all_instances_are_gone() -> None:
    cluster = cluster_of("p0")
    cluster.remove("p0")
    assert cluster.model is None
    assert isinstance(cluster.register(info("p1", model={"dtype": "bfloat16"}), 0.0), Registered)


def test_an_instance_may_replace_itself_with_another_model_at_its_url() -> None:
    cluster = cluster_of("p0")
    fresh = info("p1", url="http://p0", model={"dtype": "bfloat16"})
    assert cluster.register(fresh, 0.0) == Registered(lost=("p0",))


def test_a_restarted_process_replaces_its_predecessor_at_once() -> None:
    cluster = cluster_of("p0", "d0")
    assert cluster.register(info("p9", url="http://p0"), 1.0) == Registered(lost=("p0",))
    assert [p.instance_id for p in cluster.view(1.0).prefills] == ["p9"]
    assert not cluster.heartbeat(beat("p0"), 1.0)


def test_silence_hides_an_instance_then_forgets_it() -> None:
    cluster = cluster_of("p0")
    assert cluster.view(3.0).prefills
    assert not cluster.view(3.1).prefills
    assert cluster.expire(3.1) == []
    assert cluster.heartbeat(beat("p0"), 4.0)
    assert cluster.view(4.0).prefills
    assert cluster.expire(10.1) == ["p0"]
    assert not cluster.heartbeat(beat("p0"), 10.2)


def test_a_suspect_is_not_used_until_it_is_heard_of() -> None:
    cluster = cluster_of("p0")
    cluster.suspect("p0")
    assert not cluster.view(0.0).prefills
    assert cluster.heartbeat(beat("p0", free_pages=1000), 0.5)
    assert cluster.view(0.5).prefills


def test_a_choice_counts_at_once_at_both_instances() -> None:
    cluster = cluster_of("p0", "d0")
    choice = place(cluster, "r1")
    view = cluster.view(0.0)
    assert view.prefills[0].queue_s == pytest.approx(choice.prefill.work_s)
    assert view.decodes[0].running == 1
    assert view.decodes[0].free_pages == 1000 - 64
    assert place(cluster, "r2").prefill.ttft_s > choice.prefill.ttft_s


def test_two_requests_between_heartbeats_take_two_instances() -> None:
    cluster = cluster_of("p0", "p1", "d0", "d1")
    chosen = [place(cluster, name) for name in ("r1", "r2")]
    assert {c.prefill.instance.instance_id for c in chosen} == {"p0", "p1"}
    assert {c.decode.instance_id for c in chosen} == {"d0", "d1"}


def test_ended_work_is_given_back_once() -> None:
    cluster = cluster_of("p0", "d0")
    place(cluster, "r1")
    for _ in range(2):
        cluster.prefill_ended(("r1", 0), "p0", 0.1)
        cluster.decode_ended(("r1", 0), "d0")
    view = cluster.view(0.1)
    assert view.prefills[0].queue_s == 0.0
    assert (view.decodes[0].running, view.decodes[0].free_pages) == (0, 1000)


def test_the_queue_drains_with_time() -> None:
    cluster = cluster_of("p0", "d0")
    work_s = place(cluster, "r1").prefill.work_s
    assert cluster.view(0.4).prefills[0].queue_s == pytest.approx(work_s - 0.4)
    assert cluster.view(2.0).prefills[0].queue_s == 0.0


def test_a_heartbeat_that_has_seen_all_work_corrects_the_queue() -> None:
    cluster = cluster_of("p0", "d0")
    place(cluster, "r1")
    assert cluster.heartbeat(beat("p0", running=1, queued_tokens=100), 0.2)
    assert cluster.view(0.2).prefills[0].queue_s == pytest.approx(0.1)


def test_a_heartbeat_from_before_the_work_does_not_hide_it() -> None:
    cluster = cluster_of("p0", "d0")
    work_s = place(cluster, "r1").prefill.work_s
    assert cluster.heartbeat(beat("p0"), 0.0)
    assert cluster.view(0.0).prefills[0].queue_s == pytest.approx(work_s)


def test_quarantined_pages_are_not_free() -> None:
    cluster = cluster_of("p0", "d0")
    assert cluster.heartbeat(beat("d0", free_pages=900, quarantined_pages=100), 0.0)
    assert cluster.view(0.0).decodes[0].free_pages == 900


def test_an_answer_that_ended_runs_no_more_whatever_the_last_heartbeat_said() -> None:
    cluster = cluster_of("p0", "d0")
    place(cluster, "r1")
    assert cluster.heartbeat(beat("d0", running=1, free_pages=936), 0.5)
    cluster.decode_ended(("r1", 0), "d0")
    decode = cluster.view(0.6).decodes[0]
    assert (decode.running, decode.free_pages) == (0, 1000)


def test_step_times_come_from_heartbeats() -> None:
    cluster = cluster_of("p0", "d0")
    assert cluster.heartbeat(beat("d0", running=2, tbt_s=0.2, free_pages=1000), 0.0)
    assert cluster.view(0.0).decodes[0].steps.seconds(2) == pytest.approx(0.2)


def test_a_slow_prefill_makes_its_instance_less_attractive() -> None:
    cluster = cluster_of("p0", "p1", "d0")
    for index in range(5):
        result = PrefillResult(
            request_id=f"r{index}",
            attempt=0,
            first_token=1,
            cached_tokens=0,
            local_tokens=0,
            store_tokens=0,
            queue_s=0,
            load_s=0,
            compute_s=4.0,
            send_s=0.0,
        )
        cluster.learn("p0", 1000, result)
    assert place(cluster, "r").prefill.instance.instance_id == "p1"


def test_missed_events_ask_for_a_registration_which_starts_anew() -> None:
    cluster = cluster_of("p0")
    stored = [name.hex() for name in NAMES]
    assert cluster.heartbeat(beat("p0", KvEvents(seq=0, stored=stored)), 0.0)
    assert cluster.match(NAMES) == {"p0": 4}
    assert not cluster.heartbeat(beat("p0", KvEvents(seq=5, stored=stored)), 0.0)
    cluster.register(info("p0"), 0.0)
    assert cluster.match(NAMES) == {"p0": 0}
    assert cluster.heartbeat(beat("p0", KvEvents(seq=0, stored=stored[:2])), 0.0)
    assert cluster.match(NAMES) == {"p0": 2}
