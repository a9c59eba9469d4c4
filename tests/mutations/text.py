"""PTX as editable text: statements with their Python lines, and edits that keep both in step."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass, field

from nbtc.emulator import parse
from nbtc.emulator.findings import user_first

_REGISTER = re.compile(r"%[a-zA-Z_]\w*")
_WIDTHS = {"%rd": ("%mutd", "b64", "s64"), "%rs": ("%muts", "b16", "s16"),
           "%r": ("%mutr", "b32", "s32")}  # fmt: skip
_BLOCK = re.compile(r"^\t\{ \.reg .*; \}$", re.MULTILINE)
_DECLARE = ("\t.reg .b32 %mutr<32>; .reg .b64 %mutd<32>; .reg .b16 %muts<32>; "
            ".reg .pred %mutp<32>;")  # fmt: skip


def split(text: str) -> list[str]:
    """Split operands at the commas outside of brackets and braces."""
    out, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[{(") - (c in "]})")
        if c == "," and depth == 0:
            out.append(text[start:i].strip())
            start = i + 1
    rest = text[start:].strip()
    return [*out, rest] if rest else out


@dataclass
class Site:
    """One instruction of the text: where it stands, what it is, whose Python line it is."""

    line: int
    op: str
    operands: list[str]
    guard: str
    file: str
    python: int
    before: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The Python line."""
        return linecache.getline(self.file, self.python).strip()

    def __str__(self) -> str:
        own = f"{self.guard} {self.op} {', '.join(self.operands)};"
        return "\t" + " ".join([*self.before, own.strip()])


class Text:
    """A PTX module whose statements can be found by opcode and Python line, and replaced."""

    def __init__(self, ptx: str) -> None:
        """Parse; every statement of interest gets a line of its own."""
        ptx = _BLOCK.sub(lambda block: block[0].replace("; ", ";\n"), ptx)
        self.ptx = ptx
        self.lines = ptx.split("\n")
        module = parse(ptx)
        self.sites: list[Site] = []
        for function in module.functions.values():
            for block in function.blocks:
                for ins in block.instructions:
                    site = self._site(ins)
                    if site is not None:
                        self.sites.append(site)
        self.sites.sort(key=lambda s: s.line)
        self.by_line = {s.line: s for s in self.sites}
        self.loc: list[str] = [""]
        for line in self.lines:
            is_loc = line.lstrip().startswith(".loc")
            self.loc.append(line if is_loc else self.loc[-1])
        entry = next(i for i, s in enumerate(self.lines) if ".entry" in s)
        self.open = next(i for i in range(entry, len(self.lines)) if self.lines[i].startswith("{"))

    def _site(self, ins) -> Site | None:
        found = re.match(r"\s*(@!?%\w+)?\s*([\w.:]+)\s*(.*);\s*$", self.lines[ins.ptx_line - 1])
        if found is None or found[2] != ins.op:
            return None
        frame = user_first(ins.chain)[0] if ins.chain else None
        file, python = (frame.file, frame.line) if frame else ("<ptx>", ins.ptx_line)
        return Site(ins.ptx_line, ins.op, split(found[3]), found[1] or "", file, python)

    def find(self, op: str, source: str = "") -> list[Site]:
        """Sites whose opcode matches the pattern ``op`` and whose Python line has ``source``."""
        return [s for s in self.sites if re.match(op, s.op) and re.search(source, s.source)]

    def apply(self, edits: dict[int, list[str]]) -> str:
        """Return the text with lines replaced by other lines."""
        out = []
        for number, line in enumerate(self.lines, 1):
            out += edits.get(number, [line])
            if number == self.open + 1:
                out.append(_DECLARE)
        return "\n".join(out)

    # -- building blocks of edits -------------------------------------------------------------

    def moved(self, sites: list[Site], where: int, before: bool = False) -> dict[int, list[str]]:
        """Move statements to behind (or before) a line, with their Python line."""
        edits = {s.line: [] for s in sites}
        body = [x for s in sites for x in (self.loc[s.line], str(s))]
        anchor, back = self.lines[where - 1], self.loc[where]
        edits[where] = [*body, back, anchor] if before else [anchor, *body, back]
        return edits

    def hoisted(self, site: Site, where: int) -> dict[int, list[str]]:
        """Move a statement up to before a line, with what computes its operands."""
        need = set(_REGISTER.findall(", ".join(site.operands)))
        chain, taken = [], []
        for number in range(site.line - 1, where - 1, -1):
            other = self.by_line.get(number)
            if self.lines[number - 1].startswith("$L"):
                raise ValueError(f"a label at line {number} between {site.line} and {where}")
            if other is not None and other.operands and other.operands[0] in need:
                need |= set(_REGISTER.findall(", ".join(other.operands[1:])))
                chain.append(self.lines[number - 1])
                taken.append(number)
        edits: dict[int, list[str]] = {n: [] for n in [*taken, site.line]}
        old = self.loc[where]
        first = edits.pop(where, None) is None
        edits[where] = [*reversed(chain), self.loc[site.line], str(site), old,
                        *([self.lines[where - 1]] if first else [])]  # fmt: skip
        return edits


_serial = [0]


def fresh(width: str) -> str:
    """Return an unused register: ``b32``, ``b64``, ``b16`` or ``pred``."""
    _serial[0] = (_serial[0] + 1) % 32
    name = {"b32": "%mutr", "b64": "%mutd", "b16": "%muts", "pred": "%mutp"}[width]
    return f"{name}{_serial[0]}"


def with_operand(site: Site, index: int, change: str) -> Site:
    """Return the site with one operand changed: ``"+16"``, ``"^1"`` or ``"=5"``.

    An address in brackets gets an offset; of a tensor address ``[map, {x, y}]``, the change
    ``"x+1"`` or ``"y+1"`` goes to a coordinate.
    """
    operands, before = list(site.operands), list(site.before)
    operand = operands[index]
    inner = re.fullmatch(r"\[(.*)\]", operand)
    if change[0] in "xy" and inner:
        base, coordinates = split(inner[1])
        items = split(coordinates[1:-1])
        which = "xy".index(change[0])
        items[which] = _changed(items[which], change[1:], before)
        operands[index] = f"[{base}, {{{', '.join(items)}}}]"
    elif inner and change[0] == "+":
        operands[index] = f"[{inner[1]}{change}]"
    elif inner:
        operands[index] = f"[{_changed(inner[1], change, before)}]"
    else:
        operands[index] = _changed(operand, change, before)
    return Site(site.line, site.op, operands, site.guard, site.file, site.python, before)


def _changed(value: str, change: str, before: list[str]) -> str:
    kind, amount = change[0], int(change[1:], 0)
    if kind == "=":
        if not value.startswith("%"):
            return str(amount)
    elif not value.startswith("%"):
        number = int(value, 0)
        return str(number + amount if kind == "+" else number ^ amount)
    prefix = "%rd" if value.startswith("%rd") else "%rs" if value.startswith("%rs") else "%r"
    _, bits, signed = _WIDTHS[prefix]
    new = fresh(bits)
    if kind == "=":
        before.append(f"mov.{bits} {new}, {amount};")
    elif kind == "+":
        before.append(f"add.{signed} {new}, {value}, {amount};")
    else:
        before.append(f"xor.{bits} {new}, {value}, {amount};")
    return new
