import math
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf

from gnmt_tf.config import SearchConfig, UserError
from gnmt_tf.search.ensemble import Ensemble
from gnmt_tf.search.formats import formatted, pharaoh
from gnmt_tf.search.sampling import sample
from gnmt_tf.search.scorer import NOTHING, PairScorer, parse_n_best
from gnmt_tf.search.shortlist import Shortlist
from gnmt_tf.search.translator import BLANK, Rate, Translator, source_bucket
from gnmt_tf.training.model_directory import ModelDirectory, load_model

WORDS = ["one", "two", "red", "cat"]


@pytest.fixture(scope="module")
def loaded(trained_model):
    return load_model(str(trained_model))


@pytest.fixture(scope="module")
def make(loaded):
    """Translators by their settings, each made once."""
    made = {}

    def make(keep_attention=False, **settings):
        key = keep_attention, tuple(settings.items())
        if key not in made:
            settings = {"beam_width": 2, "batch_size": 4, "max_source_pieces": 12} | settings
            made[key] = Translator(loaded.model, loaded.segmenter, SearchConfig(**settings), keep_attention)
        return made[key]

    return make


@pytest.fixture(scope="module")
def translator(make):
    return make()


def random_lines(count, share_blank=0.25, seed=1):
    chance = np.random.default_rng(seed)
    return [
        " " * int(chance.integers(0, 4))
        if chance.random() < share_blank
        else " ".join(chance.choice(WORDS, chance.integers(1, 8)))
        for _ in range(count)
    ]


def test_lines_keep_their_places_with_a_quarter_of_them_blank(translator):
    lines = random_lines(1300)
    alone = {line: translator.translate([line])[0] for line in sorted(set(lines))[:25]}
    together = translator.translate(lines)
    assert len(together) == 1300
    for line, translation in zip(lines, together, strict=True):
        assert (translation == BLANK) == (not line.strip())
        if line in alone:
            assert translation.text == alone[line].text
            assert translation.score == pytest.approx(alone[line].score, abs=1e-4)
    streamed = list(translator.translate_stream(iter(lines)))
    assert [t.text for t in streamed] == [t.text for t in together]


@pytest.mark.parametrize("line", ["", " ", "\t \t", "\u00a0", "\u2028", "\u3000\u00a0"])
def test_a_blank_line_becomes_an_empty_one(translator, line):
    assert translator.translate([line]) == [BLANK]


@pytest.mark.parametrize("line", ["😀 one", "two\u00a0red", "cat\u2028dog", "a\rb", "<unk> </s>", "漢字", "e\u0301"])
def test_characters_never_seen_are_translated_somehow_and_stay_one_line(translator, line):
    (translation,) = translator.translate([line])
    assert "\n" not in translation.text
    assert translation.num_pieces > 0


def test_a_line_of_five_thousand_words_is_cut_and_flagged(translator):
    short, long = translator.translate(["one two", "one " * 5000])
    assert long.truncated
    assert translator.translate(["one two"])[0].text == short.text


def test_a_long_line_is_split_at_the_ends_of_its_sentences(make):
    sentences = ["one two red .", "two cat one one .", "red red ."]
    (whole,) = make(long_lines="split").translate([" ".join(sentences)])
    assert whole.text == " ".join(t.text for t in make().translate(sentences))
    assert whole.truncated == any(t.truncated for t in make().translate(sentences))
    (cut,) = make().translate([" ".join(sentences)])
    assert cut.truncated


def test_a_split_line_keeps_all_that_is_known_of_its_sentences(make):
    translator = make(keep_attention=True, long_lines="split", min_length=2)
    sentences = ["one two red .", "two cat one one .", "red red ."]
    (whole,) = translator.translate([" ".join(sentences)])
    parts = translator.translate(sentences)
    (hypothesis,) = whole.hypotheses
    assert whole.source_pieces == tuple(piece for part in parts for piece in part.source_pieces)
    assert hypothesis.pieces == tuple(piece for part in parts for piece in part.hypotheses[0].pieces)
    assert whole.score == pytest.approx(sum(part.score for part in parts), abs=1e-4)
    assert hypothesis.attention.shape == (len(hypothesis.pieces), len(whole.source_pieces))
    np.testing.assert_allclose(hypothesis.attention.sum(axis=1), 1.0, atol=1e-5)
    assert "|||" in formatted(whole, 0, "", "moses", False, False)
    assert whole.text in formatted(whole, 0, "", "moses", False, False)
    assert len(pharaoh(whole).split()) == len(hypothesis.pieces) - 1


def test_a_line_without_spaces_is_split_at_its_full_stops(make):
    parts = make(long_lines="split")._parts("漢字漢字漢字漢字。漢字漢字漢字漢字！ 漢字")
    assert parts == ["漢字漢字漢字漢字。", "漢字漢字漢字漢字！", "漢字"]


def test_a_batch_of_three_thousand_lines_is_translated(make):
    lines = random_lines(3000, seed=4)
    translator = make(batch_size=3000)
    assert len(translator.translate(lines)) == 3000


def test_batches_by_tokens_hold_no_more_than_asked_for_and_change_nothing(make, translator):
    lines = random_lines(60)
    by_tokens = make(batch_tokens=20)
    shapes = []
    inner = by_tokens._search

    def seen(batch, *rest):
        shapes.append(len(batch) * max(len(line.ids) for line in batch))
        return inner(batch, *rest)

    by_tokens._search = seen
    assert [t.text for t in by_tokens.translate(lines)] == [t.text for t in translator.translate(lines)]
    assert max(shapes) <= 20
    assert len(set(shapes)) > 1


def test_batches_side_by_side_change_nothing_and_stop_at_the_first_error(make, loaded):
    lines = random_lines(120)
    one = make(parallel_batches=1).translate(lines)
    done = []
    assert make(parallel_batches=3).translate(lines, done.append) == one
    assert done == sorted(done)
    assert done[-1] == len(lines)
    # The numbers of a batch that fails do not get lost in a thread, and no other batch is begun.
    translator, asked = Translator(loaded.model, loaded.segmenter, SearchConfig(parallel_batches=2, batch_size=1)), []

    def search(*_):
        asked.append(1)
        raise UserError("model", "finite logits", "NaN", "Use another.")

    translator._search = search
    with pytest.raises(UserError, match="finite logits"):
        translator.translate(["one two"] * 500)
    assert len(asked) < 500


def test_n_best_hypotheses_have_different_texts_the_best_first_and_the_same_one_first(make, translator):
    lines = random_lines(20)
    for one, many in zip(translator.translate(lines), make(n_best=2).translate(lines), strict=True):
        assert many.text == one.text
        texts = [h.text for h in many.hypotheses]
        assert len(set(texts)) == len(texts) <= 2
        assert [h.score for h in many.hypotheses] == sorted((h.score for h in many.hypotheses), reverse=True)


def test_a_hypothesis_tells_its_pieces_and_their_log_probabilities(make, loaded):
    (translation,) = make(keep_attention=True, n_best=2).translate(["one two red"])
    for hypothesis in translation.hypotheses:
        assert hypothesis.pieces[-1] == "</s>"
        assert len(hypothesis.pieces) == len(hypothesis.piece_log_probs) == len(hypothesis.attention)
        assert sum(hypothesis.piece_log_probs) == pytest.approx(hypothesis.log_prob, abs=1e-4)
        assert loaded.segmenter.restore(hypothesis.pieces[:-1]) == hypothesis.text
        np.testing.assert_allclose(hypothesis.attention.sum(axis=1), 1.0, atol=1e-5)
        assert hypothesis.attention.shape[1] == len(translation.source_pieces)


def test_a_translation_starts_with_the_prefix_that_is_asked_for(translator):
    lines = ["one two", "red", "cat cat one"]
    results = translator.translate(lines, prefixes=["chat rouge", "", "deux"])
    assert results[0].text.startswith("chat rouge")
    assert results[2].text.startswith("deux")
    assert results[1].text == translator.translate(["red"])[0].text


def test_a_prefix_longer_than_the_limit_is_refused_by_line(translator):
    with pytest.raises(UserError, match=r"target prefix of line 2: expected at most \d+ pieces"):
        translator.translate(["one", "two"], prefixes=["", "chat " * 100])


def test_alternatives_differ_in_the_piece_after_the_prefix_and_the_best_is_the_search_own(make, loaded):
    translator = make()
    for prefix in ("", "chat un"):
        found = translator.alternatives("one two red", prefix, 4)
        place = len(loaded.segmenter.encode(prefix))
        assert len({h.pieces[place] for h in found.hypotheses}) == len(found.hypotheses) == 4
        assert all(h.text.startswith(prefix) for h in found.hypotheses)
        (own,) = translator.translate(["one two red"], prefixes=[prefix])
        assert own.score <= found.score + 1e-4


def test_a_source_prefix_is_read_before_every_line_and_is_no_part_of_alignments(make, loaded):
    lines, plain = ["one two", "", "red"], make(keep_attention=True, min_length=2)
    expected = plain.translate(["cat one two", "", "cat red"])
    prefixed = make(keep_attention=True, min_length=2, source_prefix="cat")
    found = prefixed.translate(lines)
    assert [(t.text, t.score) for t in found] == [(t.text, t.score) for t in expected]
    count = len(loaded.segmenter.encode("cat"))
    links = [tuple(map(int, link.split("-"))) for link in pharaoh(expected[0]).split()]
    shifted = [f"{source - count}-{target}" for source, target in links if source >= count]
    assert pharaoh(found[0]) == " ".join(shifted)
    scores = [PairScorer(loaded.model, loaded.segmenter, t.search) for t in (plain, prefixed)]
    assert scores[0]([("cat one", "un")]) == scores[1]([("one", "un")])


def test_another_number_of_prefixes_than_of_lines_is_refused(translator):
    with pytest.raises(UserError, match="target prefixes: expected one for each of 2 lines, got 1"):
        translator.translate(["one", "two"], prefixes=["un"])
    with pytest.raises(UserError, match="target prefixes"):
        list(translator.translate_stream(["one", "two"], prefixes=[]))


def test_an_alternative_at_the_limit_is_the_end(make, loaded):
    prefix = "chat un rouge"
    length = len(loaded.segmenter.encode(prefix)) + 1
    found = make(max_length_factor=1e-3, max_length_constant=length).alternatives("one", prefix, 3)
    assert [h.text for h in found.hypotheses] == [prefix]
    assert make().alternatives(" ", "", 3) == BLANK


def test_a_banned_piece_does_not_occur(make):
    lines = random_lines(10, share_blank=0.0)
    pieces = Counter(
        p for t in make(min_length=3).translate(lines) for h in t.hypotheses for p in h.pieces if p != "</s>"
    )
    banned = pieces.most_common(1)[0][0]
    without = make(min_length=3, banned_pieces=(banned,)).translate(lines)
    assert not any(banned in h.pieces for t in without for h in t.hypotheses)


def test_a_banned_piece_that_is_not_in_the_vocabulary_is_refused(loaded):
    with pytest.raises(UserError, match=r"search.banned_pieces.*'nowhere'"):
        Translator(loaded.model, loaded.segmenter, SearchConfig(banned_pieces=("nowhere",)))


def test_a_width_above_the_vocabulary_is_refused(loaded):
    with pytest.raises(UserError, match=r"search.beam_width: expected at most \d+"):
        Translator(loaded.model, loaded.segmenter, SearchConfig(beam_width=1000))


@pytest.mark.parametrize("size", [1, 2])
def test_no_n_gram_occurs_twice(make, size):
    for translation in make(no_repeat_ngram=size).translate(random_lines(12, share_blank=0.0)):
        pieces = translation.hypotheses[0].pieces[:-1]
        n_grams = [pieces[i : i + size] for i in range(len(pieces) - size + 1)]
        assert len(set(n_grams)) == len(n_grams)


def test_translations_have_the_least_length(make):
    for translation in make(min_length=9).translate(random_lines(8, share_blank=0.0)):
        assert translation.num_pieces >= 10


def test_an_unknown_character_is_copied_from_where_the_attention_lies(make, loaded):
    line = "one 漢 two"
    unknown, prefix = "<unk>", "漢"
    (translation,) = make(keep_attention=True).translate([line], prefixes=[prefix])
    assert unknown in translation.hypotheses[0].pieces
    assert "漢" in translation.text
    assert "\u2047" not in translation.text
    # Without an unknown character in the source there is nothing to copy.
    (translation,) = make(keep_attention=True).translate(["one two"], prefixes=[prefix])
    assert "\u2047" in translation.text


def test_samples_depend_on_the_seed_and_the_line_but_not_on_the_batch(make):
    lines = random_lines(10, share_blank=0.0)
    settings = {"method": "sample", "n_best": 3}
    first, other = make(**settings, seed=1), make(**settings, seed=2)
    texts = [[h.text for h in t.hypotheses] for t in first.translate(lines)]
    small = Translator(first.model, first.segmenter, first.search.model_copy(update={"batch_size": 3}))
    assert texts == [[h.text for h in t.hypotheses] for t in small.translate(lines)]
    assert texts != [[h.text for h in t.hypotheses] for t in other.translate(lines)]
    same_line = [first.translate(["one two red"] * 6), other.translate(["one two red"] * 6)]
    assert len({t.text for t in same_line[0]}) > 1
    # Another seed is not the same numbers a line later.
    assert [t.text for t in same_line[0][1:]] != [t.text for t in same_line[1][:-1]]


def test_sampling_from_the_single_most_probable_piece_is_greedy_search(make):
    lines = random_lines(10, share_blank=0.0)
    greedy = make(beam_width=1, pruning_margin=None)
    one = make(method="sample", beam_width=1, sampling_top_k=1)
    tiny = make(method="sample", beam_width=1, sampling_top_p=1e-6)
    cold = make(method="sample", beam_width=1, temperature=1e-4)
    expected = [t.text for t in greedy.translate(lines)]
    for translator in (one, tiny, cold):
        assert [t.text for t in translator.translate(lines)] == expected


def test_a_model_that_gives_nan_ends_in_an_error_that_names_the_step(trained_model):
    loaded = load_model(str(trained_model))
    loaded.model.output_projection.bias.assign(loaded.model.output_projection.bias * math.nan)
    with pytest.raises(UserError, match="NaN or Inf at step 1 of the search for line 1"):
        Translator(loaded.model, loaded.segmenter, SearchConfig(beam_width=2)).translate(["one"])


def test_the_compiled_search_is_compiled_once_for_each_bucket(make, translator):
    compiled = make(jit_compile=True, batch_size=4, max_source_pieces=12)
    lines = random_lines(30)
    texts = [t.text for t in compiled.translate(lines)]
    assert texts == [t.text for t in translator.translate(lines)]
    buckets = {source_bucket(len(compiled.segmenter.encode(line)) + 1) for line in lines if line.strip()}
    assert compiled.num_compilations <= len(buckets) <= 2
    count = compiled.num_compilations
    compiled.translate(lines[:7])
    assert compiled.num_compilations == count


def test_buckets_grow_by_a_third_or_a_half():
    assert [source_bucket(n) for n in (1, 8, 9, 13, 17, 25, 33, 49, 65)] == [8, 8, 12, 16, 24, 32, 48, 64, 96]


def test_an_ensemble_of_one_model_twice_is_that_model(loaded, translator):
    lines = random_lines(12)
    twice = Translator(Ensemble([loaded.model, loaded.model]), loaded.segmenter, translator.search)
    for one, two in zip(translator.translate(lines), twice.translate(lines), strict=True):
        assert two.text == one.text
        assert two.score == pytest.approx(one.score, abs=1e-4)


def test_a_pair_gets_the_score_that_the_search_gave_it(make, loaded):
    lines, target = ["one two", "red", "cat cat one two red"], "chat un rouge"
    # With the target as a prefix and no room for more, it is what the search finds.
    length = len(loaded.segmenter.encode(target)) + 1
    translator = make(keep_attention=True, max_length_factor=1e-3, max_length_constant=length)
    translations = translator.translate(lines, prefixes=[target] * 3)
    scores = PairScorer(loaded.model, loaded.segmenter, translator.search)([(line, target) for line in lines])
    for translation, score in zip(translations, scores, strict=True):
        (best,) = translation.hypotheses
        assert best.text == target
        assert score.score == pytest.approx(best.score, abs=1e-4)
        assert score.log_prob == pytest.approx(best.log_prob, abs=1e-4)
        assert score.piece_log_probs == pytest.approx(best.piece_log_probs, abs=1e-4)


def test_pairs_with_a_blank_side_are_scored_without_the_model(make, loaded):
    scorer = PairScorer(loaded.model, loaded.segmenter, make().search)
    one_blank, both_blank = scorer([("one", " "), ("", " ")])
    assert one_blank.score == -math.inf
    assert both_blank == NOTHING


@pytest.mark.parametrize(("line", "message"), [("no list", "number"), ("x ||| y", "number"), ("7 ||| y", "0 to 1")])
def test_a_line_that_is_no_n_best_list_is_named(line, message):
    with pytest.raises(UserError, match=rf"list:2: .*{message}"):
        parse_n_best(["0 ||| fine ||| 1", line], "list", 2)


def test_an_ensemble_searches_with_a_shortlist(loaded, trained_model, translator):
    table = Shortlist.load(ModelDirectory(str(trained_model)).shortlist_path, loaded.segmenter.vocabulary.fingerprint)
    settings = translator.search.model_copy(update={"shortlist": 2})
    lines = random_lines(6)
    one = Translator(loaded.model, loaded.segmenter, settings, shortlist=table).translate(lines)
    two = Translator(Ensemble([loaded.model] * 2), loaded.segmenter, settings, shortlist=table).translate(lines)
    assert [t.text for t in two] == [t.text for t in one]


def test_samples_come_as_often_as_they_are_probable():
    logits = tf.math.log(tf.constant([[0.5, 0.3, 0.15, 0.05]]))
    count = 20_000
    lines = tf.range(count)
    for settings, expected in (
        ({}, [0.5, 0.3, 0.15, 0.05]),
        ({"sampling_top_k": 2}, [0.625, 0.375, 0, 0]),
        ({"sampling_top_p": 0.7}, [0.625, 0.375, 0, 0]),
        ({"temperature": 0.5}, np.asarray([0.25, 0.09, 0.0225, 0.0025]) / 0.365),
    ):
        search = SearchConfig(method="sample", **settings)
        _, ids = sample(tf.tile(logits, [count, 1]), (lines, tf.constant(3), tf.zeros_like(lines)), search)
        shares = np.bincount(ids.numpy()[:, 0], minlength=4) / count
        np.testing.assert_allclose(shares, expected, atol=0.015)


def test_a_shortlist_of_everything_changes_nothing_and_a_short_one_keeps_to_its_pieces(
    loaded, trained_model, translator
):
    path = ModelDirectory(str(trained_model)).shortlist_path
    table = Shortlist.load(path, loaded.segmenter.vocabulary.fingerprint)
    lines = random_lines(12)
    size = loaded.segmenter.vocabulary.size
    whole = Shortlist(np.tile(np.arange(size, dtype=np.int32), [size, 2])[:, :100], np.arange(size, dtype=np.int32))
    settings = translator.search.model_copy(update={"shortlist": 100})
    exact = Translator(loaded.model, loaded.segmenter, settings, shortlist=whole)
    assert [t.text for t in exact.translate(lines)] == [t.text for t in translator.translate(lines)]
    short = translator.search.model_copy(update={"shortlist": 1, "batch_size": 1})
    names = loaded.segmenter.vocabulary.pieces
    for line, translation in zip(
        lines, Translator(loaded.model, loaded.segmenter, short, shortlist=table).translate(lines), strict=True
    ):
        if line.strip():
            ids = [*loaded.segmenter.encode(line), 3]
            allowed = {names[i] for i in table.candidates(ids, 1, range(2))}
            assert set(translation.hypotheses[0].pieces) <= allowed


def test_a_shortlist_without_a_table_or_with_another_vocabularys_is_refused(loaded, tmp_path):
    with pytest.raises(UserError, match=r"search.shortlist: expected null"):
        Translator(loaded.model, loaded.segmenter, SearchConfig(shortlist=10))
    with pytest.raises(UserError, match="expected the table of pieces"):
        Shortlist.load(str(tmp_path / "none.npz"), "mine")
    (tmp_path / "damaged.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="expected the table of pieces"):
        Shortlist.load(str(tmp_path / "damaged.npz"), "mine")
    Shortlist(np.zeros([4, 100], np.int32), np.zeros([4], np.int32), "other").save(str(tmp_path / "other.npz"))
    with pytest.raises(UserError, match=r"fingerprint mine, got one of another \(other\)"):
        Shortlist.load(str(tmp_path / "other.npz"), "mine")


def test_the_table_of_a_word_by_word_corpus_has_each_words_translation_first(loaded, trained_model):
    table = Shortlist.load(ModelDirectory(str(trained_model)).shortlist_path, loaded.segmenter.vocabulary.fingerprint)
    known = 0
    for source, target in {"one": "un", "two": "deux", "red": "rouge", "cat": "chat"}.items():
        (first, *rest), (translated, *more) = loaded.segmenter.encode(source), loaded.segmenter.encode(target)
        if not rest and not more:
            assert translated in table.targets[first, :2].tolist()
            known += 1
    assert known


def test_progress_counts_every_line(translator):
    seen = []
    translator.translate(["one", "", "two", "red", "blue", "cat"], seen.append)
    assert seen[-1] == 6
    assert seen == sorted(seen)


def test_no_lines_give_no_translations(translator):
    assert translator.translate([]) == []
    assert list(translator.translate_stream(iter([]))) == []


def test_the_rate_says_how_much_is_left():
    rate = Rate(100)
    rate.start -= 10
    assert rate.describe(50).startswith("50/100 sentences, 5.0/s, 0:")
    assert Rate(None).describe(7).startswith("7 sentences, ")
