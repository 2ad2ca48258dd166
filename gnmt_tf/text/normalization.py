"""Text normalisation: the first step of segmentation, defined so that every implementation gives the same string.

Reads a line and the text settings; gives words separated by single spaces. `graph_segmenter` does the same in
TensorFlow. The two rest on different Unicode libraries (Python's tables and ICU), whose versions differ and grow. What
both know is Unicode 13, so that is what is applied: characters that later versions gave a decomposition, a combining
class or a case are plain characters here, and what stands on either side of one is normalised by itself. The stability
policy of Unicode keeps everything older fixed.
"""

import functools
import re
import unicodedata
from typing import Literal

from gnmt_tf.config import TextConfig

WORD_MARK = "\u2581"
"""Stands at the start of every word in pieces; in text it is read as U+005F."""

UNKNOWN_TEXT = "\u2047"
"""How a character outside the alphabet prints after decoding."""

# Hexadecimal ranges without any character of Unicode 13, holding every character that versions 14 to 18 added with a
# decomposition, a combining class, a part in a composition, or a case.
_AFTER_UNICODE_13 = """
558 58b-58c 5c8-5c9 897-89f 8ca-8d2 c3c 1715 1ac1-1af0 1c89 1dfa 209d-209f 2c2f a7c0 a7cb-a7f4 ab6c-ab6d 10570-105e4
10781-107bf 10d50-10d6d 10ecb-10eff 10f82-10f85 11070 11382-113d0 11f41-11f42 1611e-1612f 16d63-16d6a 16ea0-16eb8
1b123-1b126 1ccd6-1ccf9 1d127-1d128 1d250-1d281 1d6a6 1df04-1dfff 1e030-1e08f 1e2ae 1e4ec-1e6f5
"""


def _character_class(ranges: str) -> str:
    bounds = (part.partition("-") for part in ranges.split())
    return "".join(
        f"{chr(int(first, 16))}{dash}{chr(int(last, 16))}" if dash else chr(int(first, 16))
        for first, dash, last in bounds
    )


PLAIN_CHARACTERS = f"[{_character_class(_AFTER_UNICODE_13)}]"
"""A regular expression (Python's and RE2's) for one character that normalisation must leave alone."""

BLANK_CHARACTERS = "\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""The inside of a character class: the characters for which `str.isspace` holds."""

_AFTER_LAST_CAPITAL = 0x1E922
_PLAIN = re.compile(f"({PLAIN_CHARACTERS})")
_BLANK = re.compile(f"[{BLANK_CHARACTERS}]*")


def normalize(text: str, config: TextConfig) -> str:
    """One line in its normal form: Unicode form, letter case, then words separated by one U+0020 each.

    Words are split at U+0020 and U+0009 only; U+2581 in the text becomes U+005F. Normalising twice changes nothing.
    """
    if not text.isascii():
        text = _unicode_form(text, config.unicode_form)
    if config.lowercase:
        # Lowercase letters may compose where their capitals did not, so the form is taken again.
        text = text.lower() if text.isascii() else _unicode_form(_lowercase(text), config.unicode_form)
    return " ".join([word for word in text.replace(WORD_MARK, "_").replace("\t", " ").split(" ") if word])


def is_blank(text: str) -> bool:
    """Whether there is nothing but white space (`str.isspace`), or nothing at all."""
    return _BLANK.fullmatch(text) is not None


@functools.lru_cache(maxsize=1)
def lowercase_table() -> dict[int, int]:
    """Code points of upper- and titlecase characters of Unicode 13, each with its simple lowercase code point.

    One character gives one character whatever stands beside it, unlike `str.lower`: a capital sigma becomes U+03C3 at
    the end of a word too, U+0130 becomes a plain i.
    """
    characters = map(chr, range(_AFTER_LAST_CAPITAL))
    return {ord(c): ord(c.lower()[0]) for c in characters if c.lower()[0] != c and not _PLAIN.match(c)}


def _lowercase(text: str) -> str:
    return text.translate(lowercase_table())


def _unicode_form(text: str, form: Literal["none", "nfc", "nfkc"]) -> str:
    if form == "none":
        return text
    name: Literal["NFC", "NFKC"] = "NFC" if form == "nfc" else "NFKC"
    parts = _PLAIN.split(text)
    # Odd places hold the plain characters themselves.
    parts[::2] = [unicodedata.normalize(name, part) for part in parts[::2]]
    return "".join(parts)
