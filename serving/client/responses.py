"""What a Predict response says: one translation for each line.

Reads PredictResponse from any server of the API, which may send numbers as values or as packed bytes.
"""

import struct
from typing import Any, NamedTuple

from gnmt_tf.config import UserError

_OUTPUT_NAMES = ("translation", "score", "truncated")


class Translation(NamedTuple):
    """One line's translation.

    `text` has no line feed; `score` is the search's (eq. 14, higher is better); `truncated` says that the source was
    too long and was cut.
    """

    text: str
    score: float
    truncated: bool


def translations_of(response: Any, num_lines: int, origin: str) -> list[Translation]:
    """The translations in a `messages.PredictResponse`.

    Args:
      response: outputs `translation` string, `score` float32 and `truncated` bool, each [num_lines].
      num_lines: lines in the request.
      origin: the server's name in an error.

    Raises:
      UserError: an output is missing or has another length: the model is not one of `gnmt export`.
    """
    outputs = {entry.key: entry.value for entry in response.outputs}
    missing = [name for name in _OUTPUT_NAMES if name not in outputs]
    if missing:
        raise _unfit(origin, f"outputs {', '.join(sorted(outputs)) or 'none'}")
    texts = _filled(list(outputs["translation"].string_val), num_lines)
    scores = _filled(_floats(outputs["score"]), num_lines)
    flags = _filled(_bools(outputs["truncated"]), num_lines)
    lengths = (len(texts), len(scores), len(flags))
    sizes = {tuple(dim.size for dim in outputs[name].tensor_shape.dim) for name in _OUTPUT_NAMES}
    if lengths != (num_lines,) * 3 or sizes != {(num_lines,)}:
        raise _unfit(origin, f"outputs of the shapes {sorted(sizes)} for {num_lines} lines")
    return [
        Translation(text.decode(errors="replace").replace("\n", " "), score, truncated)
        for text, score, truncated in zip(texts, scores, flags, strict=True)
    ]


def _floats(tensor: Any) -> list[float]:
    content = tensor.tensor_content
    return list(struct.unpack(f"<{len(content) // 4}f", content)) if content else list(tensor.float_val)


def _bools(tensor: Any) -> list[bool]:
    return [byte != 0 for byte in tensor.tensor_content] if tensor.tensor_content else list(tensor.bool_val)


def _filled(values: list, num_lines: int) -> list:
    # A TensorProto may leave out the end of its values when it repeats the last one.
    return values + values[-1:] * (num_lines - len(values))


def _unfit(origin: str, actual: str) -> UserError:
    return UserError(
        origin,
        "a model with the outputs translation, score and truncated, one row for each line",
        actual,
        "Serve a model that `gnmt export` wrote.",
    )
