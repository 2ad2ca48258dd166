"""`gnmt serve` and `gnmt client` as a user meets them: processes, pipes, signals and exit statuses."""

import gzip
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest
from stand_in_server import running_server

from gnmt_tf import cli
from gnmt_tf.serving.client.translation_client import TranslationClient


def command_of(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gnmt_tf.cli", *arguments]


def run(*arguments: str, text: bytes = b"") -> subprocess.CompletedProcess:
    return subprocess.run(command_of(*arguments), input=text, capture_output=True, timeout=120, check=False)


def user_error_of(*arguments: str, text: bytes = b"") -> str:
    """The one line on stderr of a run that ends with status 2 and prints nothing else."""
    result = run(*arguments, text=text)
    lines = result.stderr.decode().splitlines()
    assert (result.returncode, result.stdout, len(lines)) == (2, b"", 1), result.stderr.decode()
    return lines[0]


def test_serves_until_a_signal_and_finishes_the_request_under_way(base_path):
    arguments = ["--model_base_path", str(base_path), "--port", "0", "--poll_seconds", "0"]
    process = subprocess.Popen(command_of("serve", *arguments), stderr=subprocess.PIPE, text=True)
    try:
        # TensorFlow's own start-up lines may come before.
        printed = _lines_until(process.stderr, "Serving ")
        found = re.fullmatch(r"Serving gnmt version 1 on (127\.0\.0\.1:\d+)\n", printed[-1])
        assert found, printed
        address = found[1]
        port = address.split(":")[1]
        message = user_error_of("serve", "--model_base_path", str(base_path), "--port", port)
        assert f"--port {port}" in message
        assert "in use" in message
        assert run("client", "--server", address, text="eins\n\nzwei ü\r\ndrei".encode()).stdout.decode() == (
            "EINS\n\nZWEI Ü\nDREI\n"
        )
        with TranslationClient(address, timeout_seconds=30) as client:
            assert client.translate(["connected"])[0].text == "CONNECTED"
            results = client.translate_batches([["slow one"]])
            killer = threading.Timer(0.3, lambda: process.send_signal(signal.SIGTERM))
            killer.start()
            assert [batch[0].text for batch in results] == ["SLOW ONE"]
            killer.join()
        assert process.wait(timeout=30) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()


def _lines_until(stream, start: str) -> list[str]:
    """Lines up to the one that begins with `start`; at the end of the stream, all of them."""
    lines = [stream.readline()]
    while lines[-1] and not lines[-1].startswith(start):
        lines.append(stream.readline())
    return lines


def test_serve_refuses_a_directory_without_a_version(tmp_path):
    message = user_error_of("serve", "--model_base_path", str(tmp_path))
    assert "1/saved_model.pb" in message
    assert "gnmt export" in message
    assert "--model_base_path" in user_error_of("serve")


def test_serve_refuses_a_host_that_is_not_this_machine(base_path):
    assert "--host no.such.host.invalid" in user_error_of(
        "serve", "--model_base_path", str(base_path), "--host", "no.such.host.invalid"
    )


def test_serve_of_a_version_that_cannot_be_loaded_says_why(base_path, capfd, restored_signals):
    (base_path / "1" / "variables" / "variables.index").write_bytes(b"not a checkpoint")
    assert cli.run(["serve", "--model_base_path", str(base_path), "--port", "0"]) == 2
    message = capfd.readouterr().err.splitlines()[-1]
    assert message.startswith(f"gnmt serve: --model_base_path {base_path}: expected a version that can be loaded")
    assert "version 1: cannot load" in message


@pytest.fixture
def restored_signals():
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_client_reads_and_writes_files(server, tmp_path):
    source, target = tmp_path / "source.gz", tmp_path / "target"
    source.write_bytes(gzip.compress("".join(f"line {number}\n" for number in range(100)).encode()))
    flags = ["--server", server.address, "--batch_size", "7", "--in_flight", "3"]
    result = run("client", *flags, "--input", str(source), "--output", str(target))
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert target.read_text() == "".join(f"LINE {number}\n" for number in range(100))


def test_client_writes_scores_before_a_tab(server):
    result = run("client", "--server", server.address, "--scores", text=b"ab\n\n")
    assert result.stdout == b"-1.5000\tAB\n0.0000\t\n"


def test_client_answers_each_line_that_is_typed(server):
    process = subprocess.Popen(
        command_of("client", "--server", server.address), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for line in (b"one\n", b"two\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == line.upper()
    process.stdin.close()
    assert process.stdout.read() == b""
    assert process.wait(timeout=30) == 0


def test_client_keeps_three_thousand_lines_in_their_places(server):
    lines = ["" if number % 4 == 0 else f"row {number}" for number in range(3000)]
    result = run("client", "--server", server.address, text="".join(f"{line}\n" for line in lines).encode())
    assert result.stdout.decode().split("\n") == [*(line.upper() for line in lines), ""]
    assert result.stderr == b""


def test_client_shows_progress_on_a_terminal_only(server):
    master, terminal = pty.openpty()
    subprocess.run(
        command_of("client", "--server", server.address),
        input=b"a\nb\n",
        stdout=subprocess.PIPE,
        stderr=terminal,
        timeout=60,
        check=True,
    )
    os.close(terminal)
    assert b"2 lines translated" in os.read(master, 1000)
    os.close(master)


def test_client_of_a_server_that_dies_ends_with_one_clear_line(base_path):
    with running_server(base_path) as server:
        process = subprocess.Popen(
            command_of("client", "--server", server.address),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ONE\n"
        server.grpc_server.stop(grace_seconds=0)
        # The input stays open: the client must not wait for its end to say what happened.
        process.stdin.write(b"two\n")
        process.stdin.flush()
        assert process.wait(timeout=60) == 2
        (line,) = process.stderr.read().decode().splitlines()
        assert line.startswith(f"gnmt client: server {server.address}: expected a server that can be reached")
        assert process.stdout.read() == b""
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


def test_client_of_no_server_model_or_time_says_so(server):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        assert "gnmt serve" in user_error_of("client", "--server", address, text=b"a\n")
    assert "'other'" in user_error_of("client", "--server", server.address, "--model_name", "other", text=b"a\n")
    assert "within 0.1 s" in user_error_of(
        "client", "--server", server.address, "--timeout_seconds", "0.1", text=b"slow\n"
    )
    assert "HOST:PORT" in user_error_of("client", "--server", "here", text=b"a\n")


def test_client_refuses_input_that_is_not_text_naming_the_line(server, tmp_path):
    path = tmp_path / "bad"
    path.write_bytes(b"good\nb\xffd\n")
    result = run("client", "--server", server.address, "--input", str(path))
    assert (result.returncode, result.stdout) == (2, b"GOOD\n")
    assert f"{path}:2" in result.stderr.decode()


def test_client_of_a_missing_input_leaves_the_output_as_it_was(server, tmp_path):
    target = tmp_path / "target"
    target.write_text("earlier work\n")
    flags = ["--server", server.address, "--input", str(tmp_path / "absent"), "--output", str(target)]
    assert str(tmp_path / "absent") in user_error_of("client", *flags)
    assert target.read_text() == "earlier work\n"


def test_client_does_not_write_over_its_input(server, tmp_path):
    path = tmp_path / "text"
    path.write_text("keep me\n")
    message = user_error_of("client", "--server", server.address, "--input", str(path), "--output", str(path))
    assert "another file" in message
    assert path.read_text() == "keep me\n"
    assert "--output" in user_error_of("client", "--output", str(tmp_path / "no" / "where"), text=b"a\n")


@pytest.mark.parametrize("name", ["serve", "client"])
def test_help_explains_the_command_without_loading_tensorflow(name):
    program = (
        f"import sys; from gnmt_tf import cli; status = cli.run(['{name}', '--help']);"
        "sys.exit(status or 'tensorflow' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert result.returncode == 0
    assert b"--model_name" in result.stdout


def test_client_does_not_load_tensorflow(server):
    program = (
        f"import sys; from gnmt_tf import cli; status = cli.run(['client', '--server', '{server.address}']);"
        "sys.exit(status or 'tensorflow' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], input=b"a\n", capture_output=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (0, b"A\n")
