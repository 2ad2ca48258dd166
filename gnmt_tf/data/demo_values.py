"""The values of the demonstration corpus: what is drawn at random, and how English, French and German write it.

First step of `gnmt demo-data`: a `Kind` draws a `DemoValue` and renders it in a language, with the formats of CLDR
(through Babel, no-break spaces included) and the spelled-out numbers of num2words; `demo_frames` puts the values
into sentences. Only forms with one reading are drawn. That is why there is no 12-hour clock, no day 1 (French
`1er`), no May in short dates (`May 3, 2021` is both a short and a long date), no quantity below 2 (plurals differ),
no round million (French `de`), and no spelled-out number that ends in the word one (`un` or `une`).
"""

import datetime
import functools
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any, Literal, NamedTuple

from babel import dates, numbers, units
from num2words import num2words

MAX_CACHED_RENDERINGS = 100_000
MAY = 5

_FIRST_DAY = datetime.date(1980, 1, 1).toordinal()
_LAST_DAY = datetime.date(2025, 12, 31).toordinal()

# The same name in all three languages.
_NAMES = (
    *("Anna", "Paul", "Maria", "Thomas", "Julia", "David", "Laura", "Martin", "Sarah", "Daniel", "Emma", "Lucas"),
    *("Nina", "Peter", "Clara", "Simon", "Eva", "Robert", "Lena", "Victor", "Alice", "Oscar", "Sophie", "Max"),
    *("Charlotte", "Adam", "Elisa", "Hugo", "Marc", "Felix"),
)

# English, French, German. The French names take `de` and `à` without elision or article.
_CITIES = (
    *(("Paris", "Paris", "Paris"), ("Berlin", "Berlin", "Berlin"), ("London", "Londres", "London")),
    *(("Vienna", "Vienne", "Wien"), ("Rome", "Rome", "Rom"), ("Geneva", "Genève", "Genf")),
    *(("Brussels", "Bruxelles", "Brüssel"), ("Munich", "Munich", "München"), ("Cologne", "Cologne", "Köln")),
    *(("Lisbon", "Lisbonne", "Lissabon"), ("Warsaw", "Varsovie", "Warschau"), ("Prague", "Prague", "Prag")),
    *(("Zurich", "Zurich", "Zürich"), ("Moscow", "Moscou", "Moskau"), ("Venice", "Venise", "Venedig")),
    *(("Milan", "Milan", "Mailand"), ("Naples", "Naples", "Neapel"), ("Madrid", "Madrid", "Madrid")),
    *(("Dublin", "Dublin", "Dublin"), ("Copenhagen", "Copenhague", "Kopenhagen"), ("Lyon", "Lyon", "Lyon")),
    *(("Basel", "Bâle", "Basel"), ("Bern", "Berne", "Bern"), ("Turin", "Turin", "Turin")),
    *(("Florence", "Florence", "Florenz"), ("Budapest", "Budapest", "Budapest"), ("Beijing", "Pékin", "Peking")),
    *(("Bucharest", "Bucarest", "Bukarest"), ("Tokyo", "Tokyo", "Tokio"), ("Seville", "Séville", "Sevilla")),
)
_CITY_COLUMNS = {"en": 0, "fr": 1, "de": 2}

_SYMBOL_CURRENCIES = ("EUR", "EUR", "EUR", "USD", "USD", "GBP", "CAD")
_NAMED_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "CAD", "JPY", "SEK", "PLN")
_DURATIONS = ("duration-minute", "duration-hour", "duration-day", "duration-week")


class DemoValue(NamedTuple):
    """One value, apart from any language.

    `core` is what it says (a date, a number with its unit, ...); `style` is the way it is written, where there are
    several ways. Cores are hashable, and comparable where the kind is ordered.
    """

    core: Any
    style: str = ""


class Kind(NamedTuple):
    """A kind of value: how it is drawn and how a language ("en", "fr", "de") writes it."""

    draw: Callable[[Random], DemoValue]
    write: Callable[..., str]
    ordered: bool = False
    """Whether two of them in one sentence stand in ascending order (from 9:00 to 12:30)."""


@functools.lru_cache(MAX_CACHED_RENDERINGS)
def render_value(kind: str, value: DemoValue, language: str) -> str:
    """`value`, of the kind named `kind` in `KINDS`, as `language` ("en", "fr" or "de") writes it."""
    return KINDS[kind].write(value.core, value.style, language)


def _draw_day(random: Random) -> datetime.date:
    while True:
        day = datetime.date.fromordinal(random.randint(_FIRST_DAY, _LAST_DAY))
        if day.day > 1:
            return day


def _draw_date(random: Random) -> DemoValue:
    day = _draw_day(random)
    medium = random.random() < 0.3 and day.month != MAY
    return DemoValue(day, "medium" if medium else "long")


def _draw_month_day(random: Random) -> DemoValue:
    # One leap year stands for all, so that equal days are equal values.
    return DemoValue(_draw_day(random).replace(year=2000))


def _draw_time(random: Random) -> DemoValue:
    # Mostly waking hours and round minutes, as in real text.
    hour = random.randint(6, 22) if random.random() < 0.9 else random.randint(0, 23)
    minute = 5 * random.randint(0, 11) if random.random() < 0.4 else random.randint(0, 59)
    return DemoValue(datetime.time(hour, minute))


def _draw_integer(random: Random, least_digits: int, most_digits: int) -> int:
    digits = random.randint(least_digits, most_digits)
    return random.randint(max(2, 10 ** (digits - 1)), 10**digits - 1)


def _draw_large(random: Random) -> DemoValue:
    while True:
        number = _draw_integer(random, 4, 7)
        if number % 1_000_000:
            return DemoValue(number)


def _draw_spelled(random: Random) -> DemoValue:
    choice = random.random()
    low, high = (2, 99) if choice < 0.55 else (100, 999) if choice < 0.92 else (1000, 9999)
    while True:
        number = random.randint(low, high)
        if number % 10 != 1 or number % 100 == 11:
            return DemoValue(number)


def _draw_quantity(random: Random, unit: str, most: int, style: str) -> DemoValue:
    number = Decimal(random.randint(2, most))
    if random.random() < 0.4:
        number += Decimal(random.randint(1, 9)) / 10
    return DemoValue((unit, number), style)


def _measure(units_drawn: tuple[str, ...], most: int, styles: tuple[str, ...]) -> Kind:
    def draw(random: Random) -> DemoValue:
        return _draw_quantity(random, random.choice(units_drawn), most, random.choice(styles))

    return Kind(draw, _write_unit)


def _draw_temperature(random: Random) -> DemoValue:
    style = random.choice(("long", "short", "short"))
    if random.random() < 0.8:
        return _draw_quantity(random, "temperature-celsius", 40, style)
    value = _draw_quantity(random, "temperature-celsius", 20, style)
    unit, frost = value.core
    return value._replace(core=(unit, -frost))


def _draw_duration(random: Random) -> DemoValue:
    number = Decimal(random.randint(2, 90))
    unit = random.choice(_DURATIONS)
    if unit == "duration-hour" and random.random() < 0.4:
        number += Decimal("0.5")
    return DemoValue((unit, number), "long")


def _draw_amount(random: Random, currencies: tuple[str, ...]) -> DemoValue:
    amount = _draw_integer(random, 1, 4) + Decimal(random.randint(0, 99)) / 100
    return DemoValue((random.choice(currencies), amount))


def _draw_decimal(random: Random) -> DemoValue:
    fraction = Decimal(random.randint(1, 9)) / 10 if random.random() < 0.5 else Decimal(random.randint(1, 99)) / 100
    return DemoValue(_draw_integer(random, 1, 4) + fraction)


def _draw_percent(random: Random) -> DemoValue:
    return DemoValue(random.randint(2, 99) + (Decimal(random.randint(1, 9)) / 10 if random.random() < 0.6 else 0))


def _write_skeleton(skeleton: str) -> Callable[..., str]:
    def write(moment: datetime.date | datetime.time, style: str, language: str) -> str:
        return dates.format_skeleton(skeleton, moment, locale=language)

    return write


def _write_date(day: datetime.date, style: str, language: str) -> str:
    return dates.format_date(day, style, locale=language)


def _write_weekday(weekday: int, style: str, language: str) -> str:
    return dates.get_day_names("wide", locale=language)[weekday]


def _write_number(number: int | Decimal, style: str, language: str) -> str:
    return numbers.format_decimal(number, locale=language)


def _write_spelled(number: int, style: str, language: str) -> str:
    return num2words(number, lang=language)


def _write_ordinal(number: int, style: str, language: str) -> str:
    # num2words abbreviates the French ordinal as `2me`; typographers write `2e`.
    return f"{number}e" if language == "fr" else num2words(number, lang=language, to="ordinal_num")


def _write_percent(percent: int | Decimal, style: str, language: str) -> str:
    return numbers.format_percent(Decimal(percent) / 100, locale=language, decimal_quantization=False)


def _write_symbol(money: tuple[str, Decimal], style: str, language: str) -> str:
    return numbers.format_currency(money[1], money[0], locale=language)


def _write_currency_name(money: tuple[str, int], style: str, language: str) -> str:
    return numbers.format_currency(
        money[1], money[0], "#,##0", locale=language, currency_digits=False, format_type="name"
    )


def _write_unit(quantity: tuple[str, Decimal], style: Literal["long", "short"], language: str) -> str:
    return units.format_unit(quantity[1], quantity[0], length=style, locale=language)


def _write_city(index: int, style: str, language: str) -> str:
    return _CITIES[index][_CITY_COLUMNS[language]]


def _write_as_is(core: int | str, style: str, language: str) -> str:
    return str(core)


_BOTH = ("long", "short")

KINDS: dict[str, Kind] = {
    "date": Kind(_draw_date, _write_date, ordered=True),
    "full_date": Kind(lambda random: DemoValue(_draw_day(random), "full"), _write_date, ordered=True),
    "month_day": Kind(_draw_month_day, _write_skeleton("MMMMd")),
    "month_year": Kind(
        lambda random: DemoValue(_draw_day(random).replace(day=1)), _write_skeleton("yMMMM"), ordered=True
    ),
    "year": Kind(lambda random: DemoValue(random.randint(1850, 2025)), _write_as_is, ordered=True),
    "weekday": Kind(lambda random: DemoValue(random.randint(0, 6)), _write_weekday),
    "time": Kind(_draw_time, _write_skeleton("Hm"), ordered=True),
    "small": Kind(lambda random: DemoValue(random.randint(2, 999)), _write_number),
    "large": Kind(_draw_large, _write_number),
    "decimal": Kind(_draw_decimal, _write_number),
    "spelled": Kind(_draw_spelled, _write_spelled),
    "ordinal": Kind(lambda random: DemoValue(random.randint(2, 99)), _write_ordinal),
    "code": Kind(lambda random: DemoValue(_draw_integer(random, 4, 6)), _write_as_is),
    "percent": Kind(_draw_percent, _write_percent, ordered=True),
    "money": Kind(lambda random: _draw_amount(random, _SYMBOL_CURRENCIES), _write_symbol),
    "euros": Kind(lambda random: _draw_amount(random, ("EUR",)), _write_symbol, ordered=True),
    "named_money": Kind(
        lambda random: DemoValue((random.choice(_NAMED_CURRENCIES), _draw_integer(random, 1, 5))),
        _write_currency_name,
    ),
    "mass": _measure(("mass-kilogram", "mass-gram"), 900, _BOTH),
    "distance": _measure(("length-kilometer", "length-kilometer", "length-mile"), 2000, _BOTH),
    "height": _measure(("length-meter",), 900, _BOTH),
    "area": _measure(("area-square-meter",), 2000, _BOTH),
    "volume": _measure(("volume-liter",), 900, _BOTH),
    # Short only: German would inflect the long form after `mit`.
    "speed": _measure(("speed-kilometer-per-hour",), 180, ("short",)),
    "temperature": Kind(_draw_temperature, _write_unit),
    "duration": Kind(_draw_duration, _write_unit),
    "name": Kind(lambda random: DemoValue(random.choice(_NAMES)), _write_as_is),
    "city": Kind(lambda random: DemoValue(random.randrange(len(_CITIES))), _write_city),
}
