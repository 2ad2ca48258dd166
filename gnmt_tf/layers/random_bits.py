"""A hash of numbers that serves as a random generator: cheap, the same everywhere, and fused by a compiler."""

import tensorflow as tf


def mix(bits: tf.Tensor) -> tf.Tensor:
    """A bijection of uint32 in which every input bit moves every output bit (multiply and xor-shift, two rounds)."""
    bits = (bits ^ tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32))) * tf.constant(0x7FEB352D, tf.uint32)
    bits = (bits ^ tf.bitwise.right_shift(bits, tf.constant(15, tf.uint32))) * tf.constant(0x846CA68B, tf.uint32)
    return bits ^ tf.bitwise.right_shift(bits, tf.constant(16, tf.uint32))
