"""What writers do to tensors before the engine packs them: rows moved and repeated as bytes, products in C."""

from array import array
from collections.abc import Iterable

from capsule_mt.engine.library import product, widened
from capsule_mt.engine.program import DTYPES, Codes, Tensor


def of_floats(values: Iterable[float], shape: tuple[int, ...]) -> Tensor:
    """Return numbers as a tensor in float32."""
    return Tensor(array("f", values), "F32", shape)


def floats(tensor: Tensor) -> "array[float]":
    """Return the numbers of a small tensor: the copy takes 4 bytes a number."""
    return array("f", bytes(widened(tensor).buffer))


def decoded(tensor: Tensor | Codes) -> Tensor:
    """Return the numbers that codes stand for; a tensor as it is."""
    return widened(tensor) if isinstance(tensor, Codes) else tensor


def scaled(tensor: Tensor | Codes, scale: float) -> Tensor | Codes:
    """Return a tensor times a number in float32; of codes, the magnitudes times it."""
    if isinstance(tensor, Codes):
        return Codes(tensor.codes, _scaled(tensor.magnitudes, scale))
    return _scaled(tensor, scale)


def _scaled(tensor: Tensor, scale: float) -> Tensor:
    column = Tensor(tensor.buffer, tensor.dtype, (tensor.size, 1))
    return Tensor(product(of_floats([scale], (1, 1)), column).buffer, "F32", tensor.shape)


def repeated(tensor: Tensor, times: int) -> Tensor:
    """Return a tensor [R * times, ...] with each row of [R, ...] repeated `times` times."""
    content, size = memoryview(tensor.buffer).cast("B"), DTYPES[tensor.dtype] * (tensor.size // tensor.shape[0])
    rows = (bytes(content[start : start + size]) * times for start in range(0, len(content), size))
    return Tensor(b"".join(rows), tensor.dtype, (times * tensor.shape[0], *tensor.shape[1:]))


def without_rows(tensor: Tensor, count: int) -> Tensor:
    """Return a tensor [R, ...] without its first rows."""
    size = DTYPES[tensor.dtype] * (tensor.size // tensor.shape[0])
    content = memoryview(tensor.buffer).cast("B")[count * size :]
    return Tensor(content, tensor.dtype, (tensor.shape[0] - count, *tensor.shape[1:]))


def block_diagonal(tensor: Tensor) -> Tensor:
    """Return the matrices [L, out, in] along the diagonal of one [L * out, L * in]."""
    blocks, outputs, inputs = tensor.shape
    size = DTYPES[tensor.dtype] * inputs
    content = memoryview(tensor.buffer).cast("B")
    rows: list[bytes | memoryview] = []
    for row in range(blocks * outputs):
        block = row // outputs
        rows += [bytes(block * size), content[row * size : (row + 1) * size], bytes((blocks - block - 1) * size)]
    return Tensor(b"".join(rows), tensor.dtype, (blocks * outputs, blocks * inputs))


def composed(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor]:
    """Return the weight and the bias of one linear map after another: W W_1 and W b_1 + b.

    Products are summed in float64.
    """
    (inner, shift), (outer, bias) = first, second
    sums = floats(product(shift, outer))
    if bias is not None:
        sums = array("f", map(sum, zip(sums, floats(bias), strict=True)))
    return product(inner, outer), Tensor(sums, "F32", (len(sums),))
