import gzip
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnmt_tf.config import UserError
from gnmt_tf.text.lines import decode_lines, read_lines


def lines_of(path, content: bytes) -> list[str]:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return list(read_lines(str(path)))


def refusal(path) -> str:
    with pytest.raises(UserError) as caught:
        list(read_lines(str(path)))
    return str(caught.value)


@pytest.mark.parametrize("name", ["text", "text.gz"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\n\ntwo\n", ["one", "", "two"]),
        (b"one\r\ntwo\r", ["one", "two"]),
        (b"one\r\r\n", ["one\r"]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
    ],
)
def test_lines_end_at_newlines_and_a_mark_at_the_start_is_dropped(tmp_path, name, content, expected):
    assert lines_of(tmp_path / name, content) == expected


def test_other_unicode_line_ends_do_not_end_a_line(tmp_path):
    line = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei\rj"
    assert lines_of(tmp_path / "text", (line + "\n").encode()) == [line]


@given(st.lists(st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"])), max_size=5))
def test_what_is_written_line_by_line_is_read_line_by_line(lines):
    stream = io.BytesIO(b"\xef\xbb\xbf" + "".join(line + "\n" for line in lines).encode())
    assert list(decode_lines(stream, "stdin")) == lines


def test_a_missing_file_is_named(tmp_path):
    assert "nowhere.txt: expected a readable text file, got No such file" in refusal(tmp_path / "nowhere.txt")


def test_a_folder_is_not_a_text_file(tmp_path):
    assert "Is a directory" in refusal(tmp_path)


def test_invalid_utf8_is_reported_with_file_line_and_byte(tmp_path):
    path = tmp_path / "latin1.txt"
    path.write_bytes(b"fine\ncaf\xe9 noir\n")
    message = refusal(path)
    assert "latin1.txt:2: expected valid UTF-8, got byte 0xe9 at byte 4" in message
    assert "iconv" in message


def test_an_encoded_surrogate_is_not_utf8(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xed\xa0\x80\n")
    assert "text:1: expected valid UTF-8" in refusal(path)


def test_a_nul_is_reported_with_file_and_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"a\nb\nc\0d\n")
    assert "text:3: expected text without NUL characters, got a NUL at byte 2" in refusal(path)


def test_a_utf16_file_is_told_apart(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("hello\n".encode("utf-16"))
    assert "iconv -f UTF-16" in refusal(path)


def test_standard_input_is_checked_and_named():
    with pytest.raises(UserError, match="standard input:2: expected valid UTF-8"):
        list(decode_lines(io.BytesIO(b"a\n\xff\n"), "standard input"))


@pytest.mark.parametrize("damage", ["truncated", "corrupt", "plain", "empty"])
def test_damaged_gzip_data_is_a_user_error(tmp_path, damage):
    path = tmp_path / "text.gz"
    whole = gzip.compress("".join(f"line {i * i}\n" for i in range(5000)).encode())
    content = {
        "truncated": whole[: len(whole) // 2],
        "corrupt": whole[:200] + bytes(255 - byte for byte in whole[200:300]) + whole[300:],
        "plain": b"not compressed\n",
        "empty": b"",
    }[damage]
    path.write_bytes(content)
    message = refusal(path)
    assert "text.gz" in message
    assert "gzip -t" in message
