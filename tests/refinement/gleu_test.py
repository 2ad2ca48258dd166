"""GLEU by hand, by its definition, and in a graph."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from gnmt_tf.refinement.gleu import gleu, gleu_of_ids


def padded(rows, padding):
    """What stands behind a row's end must not matter."""
    length = max(len(row) for row in rows) + 2
    return np.array([row + [padding] * (length - len(row)) for row in rows], np.int32), np.array([len(r) for r in rows])


def in_graph(outputs, targets):
    ids, lengths = padded(outputs, padding=1)
    target_ids, target_lengths = padded(targets, padding=1)
    return gleu_of_ids(*(tf.constant(value, tf.int32) for value in (ids, lengths, target_ids, target_lengths))).numpy()


EXAMPLES = [
    # 1 2 3 has 3 + 2 + 1 n-grams; of 1 2 4's, the two words and their bigram match.
    ([1, 2, 3], [1, 2, 4], 3 / 6),
    # Precision is 6/6 and recall 6/10: the smaller one counts.
    ([1, 2, 3], [1, 2, 3, 4], 6 / 10),
    ([1, 2, 3, 4], [1, 2, 3], 6 / 10),
    # Of four equal words two match, of three bigrams one; 4 + 3 + 2 + 1 n-grams.
    ([1, 1, 1, 1], [1, 1], 3 / 10),
    ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], 1.0),
    # The same words in another order: no n-gram but the words.
    ([3, 2, 1], [1, 2, 3], 3 / 6),
    ([5], [6], 0.0),
    ([], [1, 2], 0.0),
    ([1, 2], [], 0.0),
    ([], [], 0.0),
]


@pytest.mark.parametrize(("output", "target", "expected"), EXAMPLES)
def test_gleu_by_hand(output, target, expected):
    assert gleu(output, target) == pytest.approx(expected)
    assert in_graph([output], [target])[0] == pytest.approx(expected)


def test_gleu_is_for_words_too():
    assert gleu(["a", "cat", "sat"], ["a", "cat", "ran"]) == pytest.approx(0.5)


few_words = st.lists(st.integers(1, 3), max_size=9)


@given(st.lists(st.tuples(few_words, few_words), min_size=1, max_size=5))
def test_in_a_graph_it_is_what_the_definition_says(pairs):
    outputs, targets = map(list, zip(*pairs, strict=True))
    expected = [gleu(*pair) for pair in pairs]
    np.testing.assert_allclose(in_graph(outputs, targets), expected, atol=1e-6)
    np.testing.assert_allclose(in_graph(targets, outputs), expected, atol=1e-6)
    assert all(0.0 <= value <= 1.0 for value in expected)
