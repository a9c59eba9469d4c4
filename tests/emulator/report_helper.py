"""Look up an item of a report by kind, words of its message and a comment on its line."""

from __future__ import annotations

import linecache
import re


def said(report, kind: str, *words: str, at: str = "", severity: str = "findings"):
    """Give the item of a kind whose line has the comment ``at`` and whose message has the words."""
    items = getattr(report, severity)
    found = [f for f in items if f.kind == kind]
    assert found, f"no {kind} in:\n{report}"
    if at:
        found = [f for f in found if f"# {at}" in linecache.getline(f.file, f.line)]
        assert found, f"no {kind} at the line marked {at} in:\n{report}"
    for word in words:
        found = [f for f in found if re.search(word, f.message)]
        assert found, f"no {kind} that says {word!r} in:\n{report}"
    return found[0]
