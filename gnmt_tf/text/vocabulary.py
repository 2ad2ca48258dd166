"""The vocabulary: pieces in the order of their ids, with the text settings that they were made under.

Made by `wordpiece_trainer`, kept as a text file beside a model, read by both segmenters. The file holds all that
segmentation depends on, so that a model carries its own text settings wherever it goes.
"""

import dataclasses
import functools
import hashlib
import json
import os
import stat
import unicodedata
from typing import Any

import pydantic

from gnmt_tf.config import TextConfig, UserError
from gnmt_tf.text.normalization import WORD_MARK
from gnmt_tf.text.whole_file import whole_file

PAD_ID, UNKNOWN_ID, START_ID, END_ID = 0, 1, 2, 3
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
MAX_PIECE_CHARACTERS = 64
"""The tokenizer in the graph takes pieces of at most 256 bytes; a character has at most 4."""

_FORMAT = "gnmt_tf wordpieces"
_VERSION = 1
_SPECIAL_IDS = {"pad": PAD_ID, "unknown": UNKNOWN_ID, "start": START_ID, "end": END_ID}
_REMEDY = "Make it anew with `gnmt vocab`, or restore the file."


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """An immutable list of pieces; the id of a piece is its place.

    Args:
      pieces: the four special pieces, then U+2581, single characters and longer pieces in any order. Every character of
        a longer piece is a piece too, and U+2581 stands only at the start of one.
      config: the text settings that the pieces were made under.

    Raises:
      ValueError: pieces that break these rules.
    """

    pieces: tuple[str, ...]
    config: TextConfig

    pad_id = PAD_ID
    unknown_id = UNKNOWN_ID
    start_id = START_ID
    end_id = END_ID

    def __post_init__(self) -> None:
        _check_pieces(self.pieces)

    @property
    def size(self) -> int:
        """Number of pieces, the special ones included."""
        return len(self.pieces)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """The id of every piece that text can contain: all but the special ones."""
        return {piece: i for i, piece in enumerate(self.pieces) if i >= len(SPECIAL_PIECES)}

    @functools.cached_property
    def alphabet(self) -> frozenset[str]:
        """The characters that are pieces of their own, without the word mark."""
        return frozenset(piece for piece in self.ids if len(piece) == 1 and piece != WORD_MARK)

    @functools.cached_property
    def longest_by_first(self) -> dict[str, int]:
        """The length of the longest piece that starts with a character."""
        longest: dict[str, int] = {}
        for piece in self.ids:
            longest[piece[0]] = max(len(piece), longest.get(piece[0], 0))
        return longest

    @functools.cached_property
    def fingerprint(self) -> str:
        """Twelve hex digits that change when a piece, its id or a text setting does."""
        content = json.dumps([self.pieces, self.config.model_dump()], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def id_of(self, piece: str) -> int:
        """The id of a piece of text; `unknown_id` for any other string, special pieces written as text included."""
        return self.ids.get(piece, UNKNOWN_ID)

    def save(self, path: str) -> None:
        """Writes the vocabulary, one piece per line; the file is replaced as a whole or left as it was.

        Raises:
          UserError: a path that cannot be written.
        """
        try:
            if os.path.lexists(path) and not stat.S_ISREG(os.stat(path).st_mode):
                raise UserError(path, "a regular file to write", "something else", "Name a file.")
            with whole_file(path) as file:
                file.write(_to_json(self))
        except OSError as error:
            raise UserError(
                path, "a file that can be written", os.strerror(error.errno or 0), "Check the folder, space and rights."
            ) from None

    @classmethod
    def load(cls, path: str) -> "Vocabulary":
        """Reads what `save` wrote.

        Raises:
          UserError: an unreadable or damaged file, of another format, with duplicate or impossible pieces.
        """
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
        except OSError as error:
            raise UserError(
                path, "a readable vocabulary file", os.strerror(error.errno or 0), "Check the path."
            ) from None
        except (ValueError, RecursionError) as error:
            raise UserError(path, "a vocabulary file (JSON)", " ".join(str(error).split()), _REMEDY) from None
        return cls(_pieces_from(content, path), _config_from(content, path))


def _check_pieces(pieces: tuple[str, ...]) -> None:
    if tuple(pieces[: len(SPECIAL_PIECES)]) != SPECIAL_PIECES:
        raise ValueError(f"the first pieces are {SPECIAL_PIECES}, not {pieces[:4]!r}")
    known = set(pieces)
    if len(known) != len(pieces):
        seen: set[str] = set()
        duplicate = next(piece for piece in pieces if piece in seen or seen.add(piece))  # type: ignore[func-returns-value]
        raise ValueError(f"the piece {duplicate!r} is there twice")
    if WORD_MARK not in known:
        raise ValueError("the word mark U+2581 is not among the pieces")
    for piece in pieces[len(SPECIAL_PIECES) :]:
        if not 1 <= len(piece) <= MAX_PIECE_CHARACTERS:
            raise ValueError(f"the piece {piece!r} has {len(piece)} characters, not 1 to {MAX_PIECE_CHARACTERS}")
        if WORD_MARK in piece[1:]:
            raise ValueError(f"the piece {piece!r} has the word mark U+2581 inside")
        for character in piece:
            if character in " \t\0" or 0xD800 <= ord(character) <= 0xDFFF:
                raise ValueError(f"the piece {piece!r} has a character that no piece may have")
            if character not in known:
                raise ValueError(f"the piece {piece!r} has {character!r}, which is not a piece of its own")


def _to_json(vocabulary: Vocabulary) -> str:
    head = {
        "format": _FORMAT,
        "version": _VERSION,
        "text": vocabulary.config.model_dump(),
        "special_ids": _SPECIAL_IDS,
    }
    lines = ",\n".join(_quoted(piece) for piece in vocabulary.pieces)
    return json.dumps(head, indent=2).removesuffix("\n}") + ',\n  "pieces": [\n' + lines + "\n  ]\n}\n"


def _quoted(piece: str) -> str:
    """A JSON string in which no character can be lost, changed or mistaken by an editor or a line-based tool."""
    plain = piece.isprintable() and not unicodedata.category(piece[0]).startswith("M")
    return json.dumps(piece, ensure_ascii=not plain)


def _pieces_from(content: Any, path: str) -> tuple[str, ...]:
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise UserError(path, f'a vocabulary file ("format": "{_FORMAT}")', "another kind of JSON", _REMEDY)
    if content.get("version") != _VERSION:
        raise UserError(
            path, f"version {_VERSION} of the format", repr(content.get("version")), "Use the gnmt_tf that wrote it."
        )
    if content.get("special_ids") != _SPECIAL_IDS:
        raise UserError(path, f"special_ids {_SPECIAL_IDS}", repr(content.get("special_ids")), _REMEDY)
    pieces = content.get("pieces")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise UserError(path, "a list of strings under `pieces`", "something else", _REMEDY)
    try:
        _check_pieces(tuple(pieces))
    except ValueError as error:
        raise UserError(path, "a consistent list of pieces", str(error), _REMEDY) from None
    return tuple(pieces)


def _config_from(content: dict[str, Any], path: str) -> TextConfig:
    try:
        return TextConfig.model_validate(content.get("text"))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(["text", *map(str, first["loc"])])
        raise UserError(f"{path}, key {key}", "valid text settings", first["msg"], _REMEDY) from None
