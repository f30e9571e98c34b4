"""A prefix that one prefill instance computed is reused by the other, and changes nothing."""

from mooncake_core.model_spec.checkpoint import prepare_checkpoint
from mooncake_core.tokenizer import load_tokenizer
from tests.cluster.chat import Reply, ask, text_of
from tests.cluster.harness import MODEL, Cluster, eventually

FIRST, SECOND = "Name the first word.", "How many words are there?"


def shared_text(at_least: int) -> tuple[str, int]:
    """Return a text whose two prompts share at least that many tokens, and how many they share."""
    tokenizer = load_tokenizer(prepare_checkpoint(MODEL))
    words = at_least
    while True:
        text = text_of(words)
        one, two = (
            tokenizer.chat([{"role": "user", "content": f"{text}\n\n{q}"}]) for q in (FIRST, SECOND)
        )
        shared = next(i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
        if at_least <= shared < at_least + 64:
            return text, shared
        words -= max(1, (shared - at_least) // 2) if shared > at_least else -1


def stored_blocks(cluster: Cluster) -> int:
    return int(cluster.status()["store"]["objects"])


def ask_in_turn(cluster: Cluster, text: str, shared: int) -> tuple[Reply, Reply, Reply]:
    """Ask cold, then with the prefix cached by the other instance, then the same on nothing."""
    client = cluster.client
    before = stored_blocks(cluster)
    cold = ask(client, f"{text}\n\n{FIRST}", salt="one")
    eventually(
        lambda: stored_blocks(cluster) >= before + shared // 256, 10, "the blocks are stored"
    )
    reused = ask(client, f"{text}\n\n{SECOND}", salt="one", avoid=cold.prefill)
    alone = ask(client, f"{text}\n\n{SECOND}", salt="two", avoid=cold.prefill)
    return cold, reused, alone


def test_the_other_instance_reuses_the_prefix_and_answers_the_same(
    cluster_of_dtype: Cluster,
) -> None:
    text, shared = shared_text(2304)
    cold, reused, alone = ask_in_turn(cluster_of_dtype, text, shared)
    assert cold.cached_tokens == 0 and alone.cached_tokens == 0
    assert reused.prefill != cold.prefill
    assert reused.prompt_tokens - shared <= 32
    assert reused.cached_tokens >= 0.95 * shared
    assert reused.text == alone.text
    assert reused.completion_tokens == alone.completion_tokens > 0


def test_an_instance_reuses_its_own_pages(cluster_of_dtype: Cluster) -> None:
    text = text_of(400, seed=5)
    first = ask(cluster_of_dtype.client, f"{text}\n\n{FIRST}", salt="own")
    again = ask(cluster_of_dtype.client, f"{text}\n\n{FIRST}", salt="own")
    assert first.cached_tokens == 0
    assert again.cached_tokens == (first.prompt_tokens - 1) // 256 * 256 > 0
    assert again.text == first.text


def test_a_tenant_with_another_salt_shares_nothing(cluster_of_dtype: Cluster) -> None:
    text = text_of(400, seed=6)
    assert ask(cluster_of_dtype.client, text, salt="a").cached_tokens == 0
    assert ask(cluster_of_dtype.client, text, salt="b").cached_tokens == 0
    assert ask(cluster_of_dtype.client, text, salt="a").cached_tokens > 0
