"""The demonstration corpus: every pair is right, has one translation, and stays in one part."""

import datetime
import itertools
import os
import re
import subprocess
import sys
import unicodedata
from decimal import Decimal
from random import Random

import pytest
from babel import Locale, units
from babel.support import Format
from hypothesis import given, settings
from hypothesis import strategies as st
from num2words import num2words

from gnmt_tf.config import UserError
from gnmt_tf.data import demo_text
from gnmt_tf.data.demo_frames import FRAMES, Frame
from gnmt_tf.data.demo_text import DemoCounts, demo_pairs, draw_values, fill_frame, frame_slots, write_demo_data
from gnmt_tf.data.demo_values import KINDS, DemoValue, render_value

DAY = datetime.date(2021, 9, 8)
MARCH = datetime.date(2024, 3, 1)
SMALL = DemoCounts(train=3000, dev=200, test=300)

SEEDS = st.integers(min_value=0, max_value=2**32)

# `~` stands for either no-break space, whose width differs between versions of CLDR.
HAND_CHECKED = {
    "date": (DemoValue(DAY, "long"), "September 8, 2021", "8 septembre 2021", "8. September 2021"),
    "medium date": (DemoValue(DAY, "medium"), "Sep 8, 2021", "8 sept. 2021", "08.09.2021"),
    "full_date": (
        DemoValue(DAY, "full"),
        "Wednesday, September 8, 2021",
        "mercredi 8 septembre 2021",
        "Mittwoch, 8. September 2021",
    ),
    "month_day": (DemoValue(DAY), "September 8", "8 septembre", "8. September"),
    "month_year": (DemoValue(MARCH), "March 2024", "mars 2024", "März 2024"),
    "year": (DemoValue(1998), "1998", "1998", "1998"),
    "weekday": (DemoValue(5), "Saturday", "samedi", "Samstag"),
    "time": (DemoValue(datetime.time(7, 5)), "07:05", "07:05", "07:05"),
    "small": (DemoValue(999), "999", "999", "999"),
    "large": (DemoValue(1234567), "1,234,567", "1~234~567", "1.234.567"),
    "decimal": (DemoValue(Decimal("1234.5")), "1,234.5", "1~234,5", "1.234,5"),
    "spelled": (DemoValue(42), "forty-two", "quarante-deux", "zweiundvierzig"),
    "spelled hundreds": (DemoValue(300), "three hundred", "trois cents", "dreihundert"),
    "spelled eighty": (DemoValue(180), "one hundred and eighty", "cent quatre-vingts", "einhundertachtzig"),
    "spelled thousands": (
        DemoValue(2345),
        "two thousand, three hundred and forty-five",
        "deux mille trois cent quarante-cinq",
        "zweitausenddreihundertfünfundvierzig",
    ),
    "ordinal": (DemoValue(22), "22nd", "22e", "22."),
    "code": (DemoValue(48213), "48213", "48213", "48213"),
    "percent": (DemoValue(Decimal("12.5")), "12.5%", "12,5~%", "12,5~%"),
    "money": (DemoValue(("USD", Decimal("1234.50"))), "$1,234.50", "1~234,50~$US", "1.234,50~$"),
    "euros": (DemoValue(("EUR", Decimal(20))), "€20.00", "20,00~€", "20,00~€"),
    "named_money": (DemoValue(("CHF", 2000)), "2,000 Swiss francs", "2~000 francs suisses", "2.000 Schweizer Franken"),
    "mass": (DemoValue(("mass-kilogram", Decimal("2.5")), "short"), "2.5 kg", "2,5~kg", "2,5 kg"),
    "distance": (DemoValue(("length-mile", Decimal(70)), "long"), "70 miles", "70~miles", "70 Meilen"),
    "height": (DemoValue(("length-meter", Decimal(9)), "long"), "9 meters", "9~mètres", "9 Meter"),
    "area": (DemoValue(("area-square-meter", Decimal(80)), "short"), "80 m²", "80~m²", "80 m²"),
    "volume": (DemoValue(("volume-liter", Decimal("3.5")), "long"), "3.5 liters", "3,5~litres", "3,5 Liter"),
    "speed": (DemoValue(("speed-kilometer-per-hour", Decimal(90)), "short"), "90 km/h", "90~km/h", "90 km/h"),
    "temperature": (DemoValue(("temperature-celsius", Decimal(-5)), "short"), "-5°C", "-5~°C", "-5 °C"),
    "duration": (DemoValue(("duration-week", Decimal(12)), "long"), "12 weeks", "12~semaines", "12 Wochen"),
    "name": (DemoValue("Anna"), "Anna", "Anna", "Anna"),
    "city": (DemoValue(5), "Geneva", "Genève", "Genf"),
}
KIND_OF_CASE = {name: name if name in KINDS else re.search(r"date|spelled", name)[0] for name in HAND_CHECKED}


def breakable(text: str) -> str:
    """`text` with its no-break spaces, and `~` in an expectation, made plain."""
    return re.sub("[~\u00a0\u202f]", " ", text)


@pytest.mark.parametrize("case", HAND_CHECKED)
def test_every_kind_of_value_is_written_as_a_person_would_in_all_three_languages(case):
    value, *expected = HAND_CHECKED[case]
    written = [render_value(KIND_OF_CASE[case], value, language) for language in ("en", "fr", "de")]
    assert [breakable(text) for text in written] == [breakable(text) for text in expected]


def test_every_kind_has_a_hand_checked_case_and_is_used_by_a_frame():
    used = {demo_text._kind(slot) for frame in FRAMES for slot in frame_slots(frame)}
    assert used == set(KINDS) == set(KIND_OF_CASE.values())


def test_french_groups_digits_with_a_no_break_space_that_is_not_a_plain_space():
    french = render_value("large", DemoValue(1234567), "fr")
    assert french != breakable(french) == "1 234 567"


@pytest.mark.parametrize(
    ("english", "values", "expected"),
    [
        (
            "The meeting on {full_date} at {time} costs {money}.",
            {
                "full_date": DemoValue(DAY, "full"),
                "time": DemoValue(datetime.time(14, 5)),
                "money": DemoValue(("EUR", Decimal("1234.50"))),
            },
            (
                "The meeting on Wednesday, September 8, 2021 at 14:05 costs €1,234.50.",
                "La réunion du mercredi 8 septembre 2021 à 14:05 coûte 1 234,50 €.",
                "Die Sitzung am Mittwoch, 8. September 2021 um 14:05 Uhr kostet 1.234,50 €.",
            ),
        ),
        (
            "{spelled} people arrived in {month_year}.",
            {"spelled": DemoValue(45), "month_year": DemoValue(MARCH)},
            (
                "Forty-five people arrived in March 2024.",
                "Quarante-cinq personnes sont arrivées en mars 2024.",
                "Fünfundvierzig Personen kamen im März 2024 an.",
            ),
        ),
        (
            "The flight from {city} to {city2} takes {duration}.",
            {
                "city": DemoValue(2),
                "city2": DemoValue(3),
                "duration": DemoValue(("duration-hour", Decimal("2.5")), "long"),
            },
            (
                "The flight from London to Vienna takes 2.5 hours.",
                "Le vol de Londres à Vienne dure 2,5 heures.",
                "Der Flug von London nach Wien dauert 2,5 Stunden.",
            ),
        ),
    ],
)
def test_sentences_read_right_in_all_three_languages(english, values, expected):
    (frame,) = (frame for frame in FRAMES if frame.en == english)
    assert tuple(breakable(fill_frame(frame, values, language)) for language in ("en", "fr", "de")) == expected


def test_every_frame_has_the_same_slots_in_all_languages_and_no_two_are_alike():
    for frame in FRAMES:
        assert (
            set(frame_slots(frame))
            == set(re.findall(r"\{(\w+)\}", frame.fr))
            == set(re.findall(r"\{(\w+)\}", frame.de))
        )
    for column in zip(*FRAMES, strict=True):
        assert len(set(column)) == len(FRAMES)


def babel_directly(kind: str, value: DemoValue, language: str) -> str:
    """What Babel's own front door gives, where there is one for the kind."""
    form = Format(Locale(language))
    if kind in ("date", "full_date"):
        return form.date(value.core, value.style)
    if kind in ("small", "large"):
        return form.number(value.core)
    if kind == "decimal":
        return form.decimal(value.core)
    if kind in ("money", "euros"):
        return form.currency(value.core[1], value.core[0])
    if kind == "percent":
        return form.percent(Decimal(value.core) / 100, "#,##0.#%" if language == "en" else "#,##0.#\u00a0%")
    if kind == "time":
        return form.time(value.core, "HH:mm")
    if kind == "month_year":
        return form.date(value.core, "MMMM y")
    if kind == "weekday":
        return Locale(language).days["format"]["wide"][value.core]
    unit, number = value.core
    return units.format_unit(number, unit, value.style, locale=Locale(language))


@pytest.mark.parametrize("language", ["en", "fr", "de"])
@pytest.mark.parametrize(
    "kind",
    [
        *(
            "date",
            "full_date",
            "month_year",
            "weekday",
            "time",
            "small",
            "large",
            "decimal",
            "percent",
            "money",
            "euros",
        ),
        *("mass", "distance", "height", "area", "volume", "speed", "temperature", "duration"),
    ],
)
def test_formats_agree_with_babel_called_directly(kind, language):
    random = Random(f"{kind} {language}")
    for value in (KINDS[kind].draw(random) for _ in range(100)):
        assert render_value(kind, value, language) == babel_directly(kind, value, language)


@pytest.mark.parametrize("kind", KINDS)
def test_what_english_writes_alike_has_one_translation(kind):
    random = Random(kind)
    translations: dict[str, tuple[str, str]] = {}
    for value in (KINDS[kind].draw(random) for _ in range(1500)):
        english, french, german = (render_value(kind, value, language) for language in ("en", "fr", "de"))
        assert translations.setdefault(english, (french, german)) == (french, german)


@given(SEEDS)
@settings(deadline=None)
def test_spelled_numbers_agree_with_num2words_and_never_need_a_gender(seed):
    number = KINDS["spelled"].draw(Random(seed)).core
    assert 2 <= number <= 9999
    for language in ("en", "fr", "de"):
        spelled = render_value("spelled", DemoValue(number), language)
        assert spelled == num2words(number, lang=language)
        assert not re.search(r"(\bone|\bun|eins?)$", spelled)


@given(SEEDS)
def test_ambiguous_dates_are_never_drawn(seed):
    value = KINDS["date"].draw(Random(seed))
    assert value.core.day > 1
    assert (value.style, value.core.month) != ("medium", 5)


@given(SEEDS, st.sampled_from(FRAMES))
def test_two_values_of_a_kind_differ_and_ascend_where_order_matters(seed, frame):
    values = draw_values(frame, Random(seed))
    for slot in frame_slots(frame):
        if slot.endswith("2"):
            first, second = values[slot[:-1]].core, values[slot].core
            assert first != second
            assert not KINDS[slot[:-1]].ordered or first < second


@pytest.mark.parametrize("language", ["fr", "de"])
def test_twenty_thousand_pairs_have_one_target_per_source_and_are_clean_short_lines(language):
    targets: dict[str, str] = {}
    for source, target in itertools.islice(demo_pairs(language, 5), 20_000):
        assert targets.setdefault(source, target) == target
        assert 2 <= len(source.split()) <= 14
        assert len(source.split(" ")) == len(source.split())
        for text in (source, target):
            assert text == text.strip() == unicodedata.normalize("NFC", text)
            assert all(unicodedata.category(character) not in ("Cc", "Cf", "Cn", "Zl", "Zp") for character in text)
    assert len(targets) > 19_500


def test_the_same_seed_gives_the_same_pairs_and_another_seed_others():
    first, again, other = (list(itertools.islice(demo_pairs("fr", seed), 200)) for seed in (1, 1, -1))
    assert first == again
    assert not set(first) & set(other)


def test_french_and_german_translate_the_same_english():
    french, german = (list(itertools.islice(demo_pairs(language, 3), 100)) for language in ("fr", "de"))
    assert [pair.source for pair in french] == [pair.source for pair in german]
    assert [pair.target for pair in french] != [pair.target for pair in german]


def test_the_files_do_not_depend_on_the_hash_seed_of_python(tmp_path):
    program = (
        "import sys; from gnmt_tf.data.demo_text import DemoCounts, write_demo_data; "
        "write_demo_data(sys.argv[1], 'de', DemoCounts(300, 20, 30), 7)"
    )
    written = []
    for hash_seed in ("1", "2"):
        directory = tmp_path / hash_seed
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", program, str(directory)], check=True, env=environment)
        written.append({path.name: path.read_bytes() for path in directory.iterdir()})
    assert written[0] == written[1]
    assert sorted(written[0]) == ["dev.de", "dev.en", "test.de", "test.en", "train.de", "train.en"]


@pytest.mark.parametrize("language", ["fr", "de"])
def test_no_line_of_either_side_stands_twice_within_or_across_the_parts(tmp_path, language):
    summary = write_demo_data(str(tmp_path), language, SMALL, 1)
    assert [os.path.basename(path) for path in summary.paths] == [
        f"{part}.{code}" for part in ("train", "dev", "test") for code in ("en", language)
    ]
    for code in ("en", language):
        parts = [(tmp_path / f"{part}.{code}").read_text("utf-8").splitlines() for part in SMALL._fields]
        assert [len(lines) for lines in parts] == list(SMALL)
        assert len(set().union(*parts)) == sum(SMALL)
    first = (tmp_path / "test.en").read_text("utf-8").split("\n")[0]
    assert summary.examples[0].source == first


def test_a_held_out_fact_is_not_in_training_in_another_style(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_text, "FRAMES", (Frame("Until {date}", "Jusqu'au {date}", "Bis zum {date}"),))
    write_demo_data(str(tmp_path), "de", SMALL, 1)
    lines = [line for part in SMALL._fields for line in (tmp_path / f"{part}.en").read_text("utf-8").splitlines()]
    abbreviated = {re.sub(r"(\w+ \w{3})\w*( .*)", r"\1\2", line) for line in lines}
    assert len(abbreviated) == len(lines) == sum(SMALL)


def test_held_out_parts_stay_the_same_when_more_training_pairs_are_asked_for(tmp_path):
    for name, counts in (("few", SMALL._replace(train=10)), ("many", SMALL)):
        write_demo_data(str(tmp_path / name), "fr", counts, 1)
    for file in ("dev.en", "dev.fr", "test.en", "test.fr"):
        assert (tmp_path / "few" / file).read_bytes() == (tmp_path / "many" / file).read_bytes()


def test_an_unknown_language_is_refused_before_anything_is_drawn():
    with pytest.raises(UserError, match=r"target_language: expected one of fr, de, got 'es'"):
        demo_pairs("es", 1)


@pytest.mark.parametrize("field", DemoCounts._fields)
def test_a_count_that_is_not_positive_is_refused(tmp_path, field):
    with pytest.raises(UserError, match="positive number of sentence pairs, got 0"):
        write_demo_data(str(tmp_path / "new"), "fr", SMALL._replace(**{field: 0}), 1)
    assert not (tmp_path / "new").exists()


def test_more_pairs_than_the_limit_are_refused_at_once(tmp_path):
    with pytest.raises(UserError, match="at most 2,000,000 distinct pairs"):
        write_demo_data(str(tmp_path), "fr", SMALL._replace(train=10**12), 1)


def test_more_pairs_than_exist_are_refused_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_text, "FRAMES", (Frame("On {weekday}", "Le {weekday}", "Am {weekday}"),))
    monkeypatch.setattr(demo_text, "MAX_REPEATS", 500)
    with pytest.raises(UserError, match=r"can be found distinct \(about 7\), got 8"):
        write_demo_data(str(tmp_path), "fr", DemoCounts(6, 1, 1), 1)
    assert not list(tmp_path.iterdir())
    write_demo_data(str(tmp_path), "fr", DemoCounts(5, 1, 1), 1)


def test_an_output_directory_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("taken")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="output_dir: expected a directory that can be written"):
            write_demo_data(str(path), "fr", SMALL, 1)


def test_a_file_that_cannot_be_replaced_is_refused_and_leaves_no_partial_file(tmp_path):
    (tmp_path / "train.en").mkdir()
    with pytest.raises(UserError, match=r"train\.en"):
        write_demo_data(str(tmp_path), "fr", DemoCounts(5, 1, 1), 1)
    assert [path.name for path in tmp_path.iterdir()] == ["train.en"]


def test_progress_is_reported_up_to_the_last_pair(tmp_path):
    messages: list[str] = []
    write_demo_data(str(tmp_path), "fr", DemoCounts(7, 2, 3), 1, messages.append)
    assert messages == ["12 of 12 pairs"]
