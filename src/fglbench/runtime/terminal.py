"""Terminal output that replaces characters which the output's encoding lacks, instead of raising an error.

Minus signs, symbols of outcomes and frames of tables have ASCII replacements; all others become a question mark.
"""

import codecs
import io
import sys
import unicodedata

_HANDLER = "fglbench.replace"
# Each replacement is one character, so that columns stay aligned, and differs between outcomes.
_STAND_INS = dict(zip("−–—▴▾⇕≈×†‡§¶○∅≠", "---^v:~x*#$!oe/", strict=True))


def show_anything() -> None:
    """Make standard output and standard error replace characters that their encoding lacks."""
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
