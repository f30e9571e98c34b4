"""What a user of the public endpoint gets."""

from concurrent.futures import ThreadPoolExecutor

from tests.cluster.chat import ask
from tests.cluster.harness import MODEL, Cluster, metrics


def test_the_model_answers_a_question(cluster: Cluster) -> None:
    reply = ask(cluster.client, "What is the capital of France?")
    assert "Paris" in reply.text
    assert reply.finish_reason == "stop"
    assert len(reply.chunks) > 1


def test_models_are_listed(cluster: Cluster) -> None:
    assert [model.id for model in cluster.client.models.list()] == [MODEL]


def test_a_plain_completion_continues_the_text(cluster: Cluster) -> None:
    completion = cluster.client.completions.create(
        model=MODEL, prompt="The capital of France is", max_tokens=4, temperature=0
    )
    assert "Paris" in completion.choices[0].text
    assert completion.usage is not None and completion.usage.completion_tokens == 4
    assert completion.choices[0].finish_reason == "length"


def test_a_seed_makes_a_sampled_answer_repeat(cluster: Cluster) -> None:
    options = {"temperature": 1.0, "seed": 7, "max_tokens": 12}
    one, two = (ask(cluster.client, "Tell me a story.", **options) for _ in range(2))
    other = ask(cluster.client, "Tell me a story.", **{**options, "seed": 8})
    assert one.text == two.text != other.text


def test_eight_concurrent_chats_share_decode_batches(cluster: Cluster) -> None:
    prompts = [f"Count from {number} upwards, please." for number in range(8)]
    alone = [ask(cluster.client, prompt, max_tokens=24) for prompt in prompts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda p: ask(cluster.client, p, max_tokens=48), prompts))
    assert all(reply.finish_reason in ("stop", "length") for reply in together)
    assert all(reply.completion_tokens > 1 for reply in together)
    # Rows of one batch may differ in the last bits from a row alone; the start is what counts.
    assert sum(t.text[:20] == a.text[:20] for t, a in zip(together, alone, strict=True)) >= 7
    (decode,) = cluster.members("decode")
    steps = {
        name: value
        for name, value in metrics(decode.url).items()
        if name.startswith("mooncake_decode_batch_size_bucket")
    }
    total = max(steps.values())
    single = next(value for name, value in steps.items() if 'le="1.0"' in name)
    assert total > single, f"no step had more than one sequence: {steps}"
