"""The command line: `fglbench list|describe|train|export|compare|archive|tune|new|verify|doctor`.

A command imports what it needs when it runs. So `fglbench list` starts at once, without importing torch.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fglbench import __version__
from fglbench.commands import archive, compare, describe, doctor, export, listing, new, train, tune, verify
from fglbench.errors import FglbenchError
from fglbench.runtime.terminal import show_anything

COMMANDS = {
    "list": (listing, "print all datasets, methods, backbones, tasks, partition schemes, samplers and studies"),
    "describe": (describe, "print a dataset's data card, or what a component does and its settings"),
    "train": (train, "train one cell without Snakemake"),
    "export": (export, "write the clients and roles of a cell to a file for the scheme 'file'"),
    "compare": (compare, "print the numbers of a study beside those of a paper"),
    "archive": (archive, "archive a study's records in a small folder, so that other runs can reuse its cells"),
    "tune": (tune, "search settings of a study by the validation score; resumable"),
    "new": (new, "write a working file for your own method, backbone or dataset, with its test"),
    "verify": (verify, "compare stored files with their checksums, and remove damaged files on request"),
    "doctor": (doctor, "check whether this installation and machine can run everything"),
}

EARLIER = {"pack": "archive"}
"""Earlier names of commands, which still work and print a note, and the present names."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Returns:
        A parser with all commands and their options. The parsed options contain the command's function as `run`.
    """
    top = argparse.ArgumentParser("fglbench", description="A benchmark of federated graph learning.")
    top.add_argument("--version", action="version", version=f"fglbench {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        description = f"{text[0].upper()}{text[1:]}."
        earlier = [old for old, new in EARLIER.items() if new == name]
        command = commands.add_parser(name, help=text, description=description, parents=[_common()], aliases=earlier)
        module.add(command)
        command.set_defaults(run=module.run)
    return top


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--results", default="results", metavar="DIR", help="folder for everything that is made (results)"
    )
    common.add_argument("--mirror", metavar="DIR", help="offline copy of the raw data (FGLBENCH_MIRROR)")
    common.add_argument(
        "--components",
        action="append",
        default=[],
        metavar="DIR",
        help="folder with your own methods, backbones, partition schemes, samplers and datasets; may be repeated",
    )
    return common


def _age_of_process() -> float:
    """Return the seconds since this process started, with its imports; 0 if the system does not report them."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError):
        return 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; print a known error as one message on standard error.

    Args:
        arguments: the arguments after the program's name; None: those of this process.

    Returns:
        Exit status: the command's own; 1 after a known error, 0 if the reader closed the output, 130 if interrupted.
    """
    show_anything()
    args = parser().parse_args(arguments)
    if present := EARLIER.get(args.command):
        print(f"note: 'fglbench {args.command}' is now called 'fglbench {present}'.", file=sys.stderr)
    args.began = time.perf_counter() - (_age_of_process() if arguments is None else 0.0)
    try:
        return args.run(args)
    except FglbenchError as error:
        print(f"fglbench {args.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # A reader such as `head` closed the pipe. Without this, Python would print a second error at exit.
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("interrupted; finished results are kept", file=sys.stderr)
        return 130
