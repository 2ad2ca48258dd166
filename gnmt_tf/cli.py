"""The `gnmt` program: finds the command, parses its flags, runs it, and turns failures into exit statuses.

Commands are the entry points of the group `gnmt.commands`, so that a package to the right of `gnmt_tf` (serving, tpu)
registers its own without being imported from here. A command module has a docstring whose first line is its summary,
`define_flags(flag_values)` and `run(flag_values, arguments)`, and imports TensorFlow only inside `run`. One that takes
more than flags has `ARGUMENTS`, which says what.
"""

import difflib
import importlib.metadata
import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType

from absl import flags

ENTRY_POINT_GROUP = "gnmt.commands"
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `gnmt COMMAND --flags` and exits with its status (0, 2 for a user error, 130 after Ctrl-C)."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """As `main`, but returns the exit status."""
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(f"gnmt {arguments[0]}: interrupted.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`gnmt ... | head`): nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _dispatch(arguments: list[str]) -> int:
    commands = _commands()
    name = arguments[0] if arguments else "--help"
    if name in ("--help", "-h", "-help", "help"):
        print(_overview(commands))
        return 0 if arguments else EXIT_USER_ERROR
    if name == "--version":
        print(f"gnmt_tf {importlib.metadata.version('gnmt_tf')}")
        return 0
    if name not in commands:
        nearest = difflib.get_close_matches(name, commands, n=1, cutoff=0.0)
        return _refuse("gnmt", f"no command {name!r}; did you mean {nearest[0]!r}? See `gnmt --help`.")
    return _run_command(name, commands[name].load(), arguments[1:])


def _commands() -> dict[str, importlib.metadata.EntryPoint]:
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return {point.name: point for point in sorted(points, key=lambda point: point.name)}


def _summary(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().splitlines()[0]


def _overview(commands: dict[str, importlib.metadata.EntryPoint]) -> str:
    lines = ["Usage: gnmt COMMAND [--flags]", "", "Commands:"]
    lines += [f"  {name:<12}{_summary(point.load())}" for name, point in commands.items()]
    lines += ["", "`gnmt COMMAND --help` lists the flags of a command."]
    return "\n".join(lines)


def _run_command(name: str, module: ModuleType, arguments: list[str]) -> int:
    values = flags.FlagValues()
    module.define_flags(values)
    takes_arguments = getattr(module, "ARGUMENTS", "")
    # Flags may then stand behind arguments, too.
    values.set_gnu_getopt(bool(takes_arguments))
    if any(argument in ("--help", "-h", "-help") for argument in arguments):
        usage = " ".join(["Usage: gnmt", name, *takes_arguments.split(), "[--flags]"])
        print(f"{usage}\n\n{(module.__doc__ or '').strip()}\n\nFlags:")
        # absl heads the flags with the module that defined them, which says nothing to a reader.
        print("\n".join(line for line in values.get_help().splitlines() if not line.endswith(":")).strip("\n"))
        return 0
    try:
        rest = values([name, *arguments])[1:]
    except flags.Error as error:
        return _refuse(f"gnmt {name}", f"{str(error).rstrip(' .?')}; see `gnmt {name} --help`.")
    if rest and not takes_arguments:
        return _refuse(
            f"gnmt {name}",
            f"unexpected argument {rest[0]!r}: every setting is a flag, as in --flag=value (values with spaces in "
            f"quotes). See `gnmt {name} --help`.",
        )
    from gnmt_tf.config import UserError

    try:
        return module.run(values, rest) or 0
    except flags.Error as error:
        return _refuse(f"gnmt {name}", f"{str(error).rstrip(' .?')}; see `gnmt {name} --help`.")
    except UserError as error:
        return _refuse(f"gnmt {name}", str(error))


def _refuse(program: str, message: str) -> int:
    print(f"{program}: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_USER_ERROR


if __name__ == "__main__":
    main()
