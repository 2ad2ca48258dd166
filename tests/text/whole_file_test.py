import pytest

from gnmt_tf.text.whole_file import whole_file


def test_the_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    with whole_file(str(path)) as file:
        file.write("une ligne\n")
        assert not path.exists()
    assert path.read_bytes() == b"une ligne\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, ValueError, KeyboardInterrupt])
def test_what_was_there_stays_when_writing_ends_with_an_error(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("before")

    def write():
        with whole_file(str(path)) as file:
            file.write("half")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_can_be_rewritten_from_itself(tmp_path):
    path = tmp_path / "file"
    path.write_text("a\nb\n")
    with open(path) as source, whole_file(str(path)) as file:
        file.writelines(reversed(source.readlines()))
    assert path.read_text() == "b\na\n"
