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
    "list": (listing, "datasets, methods, backbones, partition schemes, samplers and studies"),
    "describe": (describe, "a dataset's data card, or what a component does and its settings"),
    "train": (train, "one cell, without Snakemake"),
    "export": (export, "the clients and roles of a cell as a file, which the scheme 'file' reads"),
    "compare": (compare, "the numbers of a study beside those that a paper prints"),
    "archive": (archive, "a study's records in a small folder, from which its cells need not be run again"),
    "tune": (tune, "searches a study's settings on the validation score; resumable"),
    "new": (new, "a working file for a method or dataset of your own, with its test"),
    "verify": (verify, "whether stored files still match their checksums; removes what does not, to be made again"),
    "doctor": (doctor, "whether this installation and machine can run everything"),
}

EARLIER = {"pack": "archive"}
"""Earlier names of commands, which still work and print a note, and the present names."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Returns:
        A parser with all commands and their options. The parsed options hold the command's function as `run`.
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
    common.add_argument("--results", default="results", metavar="DIR", help="where everything is kept (results)")
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
    if now := EARLIER.get(args.command):
        print(f"note: 'fglbench {args.command}' is called 'fglbench {now}' now.", file=sys.stderr)
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
        print("interrupted; what was finished is kept", file=sys.stderr)
        return 130
