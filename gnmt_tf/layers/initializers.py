"""Start values of the weights (section 8 of the paper: uniform in a small range)."""

from typing import Any

import tf_keras as keras


def uniform(scale: float) -> Any:
    """A new uniform initializer over [-scale, scale].

    Every weight needs one of its own: Keras gives the same values each time one instance is called. Its seed comes
    from `keras.utils.set_random_seed` or from chance.
    """
    return keras.initializers.RandomUniform(-scale, scale)
