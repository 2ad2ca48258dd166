"""What a layer may be given to look at its weights through while it is trained for int8."""

from collections.abc import Callable

import tensorflow as tf

WeightQuantizer = Callable[[tf.Tensor, int], tf.Tensor]
"""Weights float [a, b], and the axis that counts the elements of a row (0 if rows are columns) -> what the quantised
weights stand for, of the same shape. Gradients pass through as if nothing had been rounded."""
