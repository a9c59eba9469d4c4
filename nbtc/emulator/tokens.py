"""Tokens of PTX text and the small tools of a recursive-descent parser."""

from __future__ import annotations

import bisect
import re
from typing import NoReturn

from ..errors import EmulatorError

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<float>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b)
    |(?P<number>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?U?)
    |(?P<word>[A-Za-z_$%.@](?:[A-Za-z0-9_$%.]|::(?=[A-Za-z0-9_]))*)
    |(?P<punct>[{}()\[\];,:+\-|!<>=*/&~^?])""",
    re.VERBOSE | re.DOTALL,
)

_INLINE = re.compile(r"// begin inline asm\b.*?// end inline asm\b", re.DOTALL)


class Tokens:
    """The tokens of a text and a position in them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0]
        for match in re.finditer("\n", text):
            self.starts.append(match.end())
        # Starts and ends, in turn, of what the compiler copied from inline assembly.
        self.inline = [end for match in _INLINE.finditer(text) for end in match.span()]
        self.tokens: list[str] = []
        self.kinds: list[str] = []
        self.places: list[int] = []
        position = 0
        scan = _TOKEN.match
        while position < len(text):
            match = scan(text, position)
            if match is None:
                if text[position] == "\0":
                    break
                line = self.line_of(position)
                raise EmulatorError(
                    f"PTX line {line}: cannot read {text[position : position + 20]!r}"
                )
            kind = match.lastgroup
            if kind != "skip":
                word = match.group()
                if word[0] == "@" and len(word) > 1:
                    self.tokens.append("@")
                    self.kinds.append("punct")
                    self.places.append(position)
                    word = word[1:]
                    position += 1
                if word[0] == "." and word.find(".", 1) > 0:  # ".reg.b32"
                    first, *rest = word[1:].split(".")
                    for part in (first, *rest[:-1]):
                        self.tokens.append("." + part)
                        self.kinds.append("word")
                        self.places.append(position)
                    word = "." + rest[-1]
                self.tokens.append(word)
                self.kinds.append(kind or "")
                self.places.append(position)
            position = match.end()
        self.tokens.append("")
        self.kinds.append("end")
        self.places.append(len(text))
        self.at = 0

    # -- small tools --------------------------------------------------------------------

    def line_of(self, position: int) -> int:
        """Line of a position in the text."""
        return bisect.bisect_right(self.starts, position)

    def in_inline_assembly(self) -> bool:
        """Say whether the current token comes from inline assembly."""
        return bool(bisect.bisect_right(self.inline, self.places[self.at]) & 1)

    def fail(self, message: str) -> NoReturn:
        """Raise the error of an unexpected token."""
        place = self.places[self.at]
        raise EmulatorError(
            f"PTX line {self.line_of(place)}: {message}, got {self.tokens[self.at]!r}"
        )

    def peek(self) -> str:
        """Give the current token."""
        return self.tokens[self.at]

    def take(self) -> str:
        """Give the current token and go on."""
        token = self.tokens[self.at]
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        """Go past a token if it is the current one."""
        if self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        """Go past a token, which must be the current one."""
        if self.tokens[self.at] != token:
            self.fail(f"expected {token!r}")
        self.at += 1

    def integer(self) -> int:
        """Read a signed integer."""
        sign = -1 if self.accept("-") else 1
        if sign == 1:
            self.accept("+")
            if self.accept("-"):
                sign = -1
        if self.kinds[self.at] != "number":
            self.fail("expected an integer")
        return sign * to_integer(self.take())


def to_integer(token: str) -> int:
    """Value of an integer literal."""
    token = token.rstrip("U")
    low = token.lower()
    if low.startswith("0x"):
        return int(token, 16)
    if low.startswith("0b"):
        return int(token, 2)
    if len(token) > 1 and token[0] == "0" and token.isdigit():
        return int(token, 8)
    return int(token)
