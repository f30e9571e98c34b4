"""Tensors and arrays in the store."""

from __future__ import annotations

import re

import msgspec
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from mooncake_core.errors import TensorMismatch
from mooncake_core.store import PutOptions, PutResult
from mooncake_core.store.tensor_format import (
    ITEM_BYTES,
    MAX_HEADER_BYTES,
    TensorType,
    decode_header,
    encode_header,
)
from mooncake_core.store.tensors import (
    batch_get_arrays,
    batch_get_tensors,
    batch_get_tensors_into,
    batch_put_tensors,
    get_array,
    get_tensor,
    get_tensor_into,
    get_tensor_rows,
    put_tensor,
)

SHAPES = [(), (1,), (0,), (3, 0, 2), (7, 5), (2, 3, 4, 5), (1 << 18,)]


@pytest.fixture
def client(quiet_cluster):
    return quiet_cluster.client


def filled(dtype, shape):
    """Return a tensor in which every byte is set to something that its dtype has."""
    count = torch.Size(shape).numel() * ITEM_BYTES[dtype]
    raw = torch.randint(0, 2 if dtype == "bool" else 120, (count,), dtype=torch.uint8)
    return raw.view(getattr(torch, dtype)).view(shape)


def same(one, other):
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(
            one.reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8)
        )
    )


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_a_tensor_comes_back_with_its_dtype_shape_and_bits(client, dtype):
    tensors = {f"{dtype}-{shape}": filled(dtype, shape) for shape in SHAPES}
    stored = batch_put_tensors(client, tensors.items(), options=PutOptions(upsert=True))
    assert stored == [PutResult.STORED] * len(SHAPES)
    for key, tensor in tensors.items():
        got = get_tensor(client, key)
        assert same(got, tensor)
        assert got.data_ptr() % 8 == 0
        out = torch.zeros_like(tensor)
        assert get_tensor_into(client, key, out)
        assert same(out, tensor)
    assert all(map(same, batch_get_tensors(client, list(tensors)), tensors.values()))


def test_an_array_comes_back_and_is_a_tensor_too(client):
    for dtype in ("bool", "int16", "uint64", "float16", "float32", "complex128"):
        array = filled(dtype, (3, 4)).numpy()
        assert put_tensor(client, f"array-{dtype}", array, options=PutOptions(upsert=True))
        got = get_array(client, f"array-{dtype}")
        assert got.dtype == array.dtype and numpy.array_equal(got, array)
        assert same(get_tensor(client, f"array-{dtype}"), torch.from_numpy(array))
        out = numpy.zeros_like(array)
        assert get_tensor_into(client, f"array-{dtype}", out) and numpy.array_equal(out, array)


def test_what_is_not_contiguous_is_stored_as_it_looks(client):
    upsert = PutOptions(upsert=True)
    tensor = torch.arange(24, dtype=torch.float32).view(4, 6)
    odd = [
        tensor.t(),
        tensor[::2, 1:],
        tensor[1].expand(3, 6),
        torch.view_as_complex(torch.arange(8.0).view(4, 2)).conj(),
    ]
    for value in odd:
        put_tensor(client, "odd", value, options=upsert)
        assert torch.equal(get_tensor(client, "odd"), value)
    array = numpy.arange(24).reshape(4, 6)
    for value in (array.T, array[::-1], array.astype(">i4")):
        put_tensor(client, "odd", value, options=upsert)
        assert numpy.array_equal(get_array(client, "odd"), value)


def test_a_miss_is_an_answer(client):
    assert get_tensor(client, "no tensor") is None
    assert get_array(client, "no tensor") is None
    assert not get_tensor_into(client, "no tensor", torch.zeros(3))
    put_tensor(client, "there", torch.ones(2), options=PutOptions(upsert=True))
    assert [got is None for got in batch_get_arrays(client, ["no", "there", "no"])] == [
        True,
        False,
        True,
    ]
    outs = [torch.zeros(2), torch.zeros(2)]
    assert batch_get_tensors_into(client, ["no", "there"], outs) == [False, True]
    assert outs[1].tolist() == [1, 1]


def test_a_key_that_is_there_keeps_its_tensor(client):
    put_tensor(client, "first", torch.ones(2), options=PutOptions(upsert=True))
    assert put_tensor(client, "first", torch.zeros(3)) is PutResult.EXISTS
    assert get_tensor(client, "first").tolist() == [1, 1]


@pytest.mark.parametrize("shape", [(9,), (300, 1000), (5, 0), (0, 4)])
def test_rows_of_a_tensor_are_read_alone(client, shape):
    tensor = filled("bfloat16", shape)
    put_tensor(client, "rows", tensor, options=PutOptions(upsert=True))
    count = shape[0]
    for start, stop in {(0, count), (count // 3, count // 2), (count, count), (0, count // 5)}:
        assert same(get_tensor_rows(client, "rows", start, stop), tensor[start:stop])
    for start, stop in [(-1, 0), (0, count + 1), (1, 0)]:
        with pytest.raises(TensorMismatch, match="has no rows"):
            get_tensor_rows(client, "rows", start, stop)
    assert get_tensor_rows(client, "no rows", 0, 1) is None
    put_tensor(client, "rows", torch.tensor(1), options=PutOptions(upsert=True))
    with pytest.raises(TensorMismatch, match="has no rows"):
        get_tensor_rows(client, "rows", 0, 0)


@pytest.mark.parametrize(
    ("out", "needed"),
    [
        (torch.zeros(3, 2), "float32[3, 2]"),
        (torch.zeros(2, 3, dtype=torch.int32), "int32[2, 3]"),
        (torch.zeros(2, 3, dtype=torch.float64), "float64[2, 3]"),
        (torch.zeros(60_000), "float32[60000]"),
        (numpy.zeros(7), "float64[7]"),
    ],
)
def test_a_tensor_is_read_only_into_its_like(client, out, needed):
    put_tensor(client, "two by three", torch.ones(2, 3), options=PutOptions(upsert=True))
    said = f"'two by three': holds float32[2, 3]; {needed} is needed"
    with pytest.raises(TensorMismatch, match=re.escape(said)):
        get_tensor_into(client, "two by three", out)


def test_what_cannot_be_stored_or_read_into_is_said(client):
    frozen = numpy.zeros(3)
    frozen.flags.writeable = False
    for value in ([1, 2], b"bytes", 3.0, torch.zeros(3).to_sparse(), numpy.array(["text"])):
        with pytest.raises(TypeError):
            put_tensor(client, "never", value)
    for out in ([1], frozen, torch.zeros(4, 4).t(), numpy.zeros((4, 4)).T, numpy.zeros(3, ">f8")):
        with pytest.raises(TypeError):
            get_tensor_into(client, "never", out)
    with pytest.raises(ValueError, match="2 keys, 1 tensors"):
        batch_get_tensors_into(client, ["a", "b"], [torch.zeros(1)])


def test_numpy_says_which_dtype_it_does_not_have(client):
    put_tensor(client, "bf16", filled("bfloat16", (2,)), options=PutOptions(upsert=True))
    with pytest.raises(TensorMismatch, match=r"bfloat16\[2\], a dtype that NumPy does not have"):
        get_array(client, "bf16")


HOSTILE = {
    "empty": b"",
    "short": b"MCTN",
    "other": b"PK\x03\x04" + bytes(300),
    "version": b"MCTN\x02\x00\x08\x00" + bytes(56),
    "no body": b"MCTN\x01\x00\x00\x00" + bytes(56),
    "body beyond": b"MCTN\x01\x00\xff\xff" + bytes(56),
    "no msgpack": b"MCTN\x01\x00\x04\x00\xc1\xc1\xc1\xc1" + bytes(52),
}


def with_body(value, elements=b""):
    body = msgspec.msgpack.encode(value)
    header = b"MCTN\x01\x00" + len(body).to_bytes(2, "little") + body
    return header + bytes(-len(header) % 64) + elements


HOSTILE |= {
    "fields": with_body(["float32"]),
    "more fields": with_body(["float32", [1], 0], bytes(4)),
    "negative": with_body(["float32", [-1, -4]], bytes(16)),
    "dtype": with_body(["object", [1]], bytes(8)),
    "attribute": with_body(["load", [1]], bytes(8)),
    "long name": with_body(["f" * 60_000, [1]], bytes(8)),
    "too much": with_body(["float32", [1 << 40]], bytes(4)),
    "product": with_body(["uint8", [1 << 59, 1 << 59]], bytes(4)),
    "hidden": with_body(["uint8", [0, 1 << 59, 1 << 59]]),
    "dimensions": with_body(["uint8", [1] * 33], bytes(1)),
    "too few": with_body(["float32", [4]], bytes(15)),
    "too many": with_body(["float32", [4]], bytes(17)),
    "text": with_body([b"\xff\xfe", [4]], bytes(4)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_tensor_is_said_to_be_none(client, name):
    client.upsert(name, HOSTILE[name])
    for call in (get_tensor, get_array, lambda *where: get_tensor_rows(*where, 0, 1)):
        with pytest.raises(TensorMismatch, match=f"'{name}': "):
            call(client, name)
    with pytest.raises(TensorMismatch):
        get_tensor_into(client, name, torch.zeros(1))


@given(some.binary(max_size=MAX_HEADER_BYTES + 64))
def test_any_bytes_are_a_tensor_or_are_refused(content):
    for start in (b"", b"MCTN\x01\x00"):
        try:
            found, at = decode_header(memoryview(start + content), len(start + content))
        except TensorMismatch:
            continue
        assert at + found.size_bytes == len(start + content)


@given(
    some.sampled_from(list(ITEM_BYTES)),
    some.lists(some.integers(0, 1 << 20), max_size=32).filter(
        lambda shape: numpy.prod([max(n, 1) for n in shape], dtype=object) < 1 << 50
    ),
)
def test_a_header_says_what_was_said(dtype, shape):
    tensor = TensorType(dtype, tuple(shape))
    header = encode_header(tensor)
    assert len(header) % 64 == 0 and len(header) <= MAX_HEADER_BYTES
    assert decode_header(memoryview(header), len(header) + tensor.size_bytes) == (
        tensor,
        len(header),
    )


def test_the_longest_header_fits():
    tensor = TensorType("float8_e4m3fn", ((1 << 60) - 1,) * 32)
    assert len(encode_header(tensor)) <= MAX_HEADER_BYTES
