"""Which device each part of the model computes and keeps its weights on. Passed in from outside; one device by default.

The parts are `source_embedding`, `target_embedding`, `encoder/1` to `encoder/N` from the bottom, `decoder/1` to
`decoder/N` (the attention belongs to the first) and `output_projection`: the paper puts one layer on one device
(section 3).
"""

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf


class Placement(NamedTuple):
    """Devices by the names of parts; parts that are not named are where everything else is.

    A program compiled by XLA is on one device as a whole, so more than one needs `training.jit_compile: false`.

    Fields:
      devices: TensorFlow device names, such as `GPU:1`.
    """

    devices: Mapping[str, str]

    def device(self, part: str) -> contextlib.AbstractContextManager[Any]:
        """A context in which operations and variables are on the part's device."""
        name = self.devices.get(part)
        return contextlib.nullcontext() if name is None else tf.device(name)


ONE_DEVICE = Placement({})
"""Everything on whatever device the caller is on."""
