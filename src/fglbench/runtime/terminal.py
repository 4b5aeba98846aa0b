"""Output that never fails for want of a character: what a terminal's or a log's encoding has no sign for is replaced.

Signs of numbers, symbols of outcomes and frames of tables have stand-ins of ASCII, all else is a question mark.
"""

import codecs
import io
import sys
import unicodedata

_HANDLER = "fglbench.replace"
# One character each, so that columns stay in line; different ones for different outcomes.
_STAND_INS = dict(zip("−–—▴▾⇕≈×†‡§¶○∅≠", "---^v:~x*#$!oe/", strict=True))


def show_anything() -> None:
    """Has standard output and standard error replace what they cannot show."""
    codecs.register_error(_HANDLER, _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_in_ascii, error.object[error.start : error.end])), error.end


def _in_ascii(character: str) -> str:
    words = unicodedata.name(character, "").split()
    if words[:2] != ["BOX", "DRAWINGS"]:
        return _STAND_INS.get(character, "?")
    return {"HORIZONTAL": "-", "VERTICAL": "|"}.get(words[-1], "+")
