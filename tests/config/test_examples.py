"""Every example loads as its kind and says what each key means."""

from pathlib import Path

import pytest

from mooncake_core.config import KINDS, describe, kind_of_file, load_config

EXAMPLES = Path(__file__).parents[2] / "examples" / "configs"


def found(pattern: str) -> list[Path]:
    return sorted(EXAMPLES.glob(pattern))


def documented(path: Path) -> dict[str, str]:
    """Return key -> the comment above it."""
    keys, table, comment = {}, "", ""
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            comment += f"{line[1:].strip()} "
            continue
        if line.startswith("["):
            table = line.strip("[]") + "."
        elif "=" in line:
            keys[table + line.partition("=")[0].strip()] = comment.strip()
        comment = ""
    return keys


@pytest.mark.parametrize(
    "path", found("**/*.toml"), ids=lambda path: str(path.relative_to(EXAMPLES))
)
def test_an_example_loads(path: Path) -> None:
    load_config(KINDS[kind_of_file(path)], path)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_an_example_that_explains_every_key_and_shows_its_default(kind: str) -> None:
    path = EXAMPLES / f"{kind}.toml"
    keys = documented(path)
    assert set(keys) == {key.name for key in describe(KINDS[kind])}
    assert all(keys.values()), [key for key, comment in keys.items() if not comment]
    assert load_config(KINDS[kind], path)[0] == KINDS[kind]()


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_has_a_docstring(kind: str) -> None:
    assert not [key.name for key in describe(KINDS[kind]) if not key.doc]


def test_the_two_hosts_listen_where_the_other_reaches_them() -> None:
    files = found("two-host/*/*.toml")
    assert len(files) == 6
    for path in files:
        config, _ = load_config(KINDS[kind_of_file(path)], path)
        transfer = getattr(config, "transfer", None)
        listens = [getattr(config, "listen", None), transfer and transfer.listen]
        assert not [each for each in listens if each and each.startswith(("127.", "0.0.0.0"))]
    readme = (EXAMPLES / "two-host" / "README.md").read_text()
    assert "no authentication" in readme
