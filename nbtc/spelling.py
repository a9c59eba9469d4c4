"""Names that do not exist: what was meant instead, told the same way everywhere."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar, cast

T = TypeVar("T", bound=Callable[..., Any])

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def meant(word: str, names: Iterable[str]) -> str:
    """Return ``"; did you mean 'name'?"`` for a word that is none of ``names``, or ``""``.

    Args:
        word: what was written.
        names: what could have been written.
    """
    names = [name for name in names if name != word]
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    # "max_dynamic_shared" is no typing error, but it holds a name that exists.
    close += sorted((n for n in names if len(n) > 3 and n in word), key=len, reverse=True)
    return f"; did you mean {close[0]!r}?" if close else ""


def choice(value: Any, names: Iterable[str]) -> str:
    """Return ``"; did you mean 'name'?"`` for a value that is none of the names, or ``""``.

    Args:
        value: what was given; 128 for ``"128B"`` and None for ``"none"`` are understood.
        names: what could have been given.
    """
    names = list(names)
    word = str(value).lower()
    for name in names:
        if name.lower() in (word, f"{word}b"):
            return f"; did you mean {name!r}?"
    return meant(word, names) if isinstance(value, str) else ""


def require_options(what: str, given: Iterable[str], legal: Collection[str]) -> None:
    """Raise TypeError for the first given option that is not legal.

    Args:
        what: what was called, for the message.
        given: names of the options given.
        legal: names of the options that there are.
    """
    for name in given:
        if name not in legal:
            hint = meant(name, legal) or "."
            listed = ", ".join(legal)
            raise TypeError(f"{what}: no option {name!r}{hint} Options: {listed}") from None


def checked(function: T) -> T:
    """Make a function, or the constructor of a class, say which option was misspelt.

    Its signature stays. A call that Python accepts costs one more call, nothing else.
    """
    if isinstance(function, type):
        made = cast("Any", function)
        made.__init__ = _checked(made.__init__, function.__qualname__)
        return made
    return cast("T", _checked(function, function.__qualname__))


def _checked(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    legal = [p.name for p in inspect.signature(function).parameters.values() if p.kind in _KEYWORDS]
    legal = [name for name in legal if name not in ("self", "cls")]

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except TypeError:
            require_options(what, options, legal)
            raise  # wrong in another way, which Python tells

    return call
