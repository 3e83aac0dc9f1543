"""The canonical text of a program: equal programs have equal text, and the text parses back.

kernel row_sum                       name
in x f32 [8,16]                      buffers: kind name dtype [extents], :r a reused dimension;
tmp s f32 [8:r] reg                  a tmp says its place, others only when it is not heap
out z f32 [8]
---
8:p                                  a scope: extent and mark; one bar per enclosing scope
| s[{0}] = 0                         {0} is the iterator of the outermost scope
| 16:v
| | s[{0}] += x[{0},{1}]
| z[{0}] = s[{0}]
"""

import functools
import re

from kt_lab.errors import ProgramError
from kt_lab.programs.affine import Affine
from kt_lab.programs.facts import PARTS, Same
from kt_lab.programs.ir import (
    FUNCTIONS,
    UPDATES,
    Binary,
    Buffer,
    Call,
    Const,
    Dim,
    Expr,
    Node,
    Op,
    Program,
    Ref,
    Scope,
)

_DEEPEST = 100  # scopes or operands within each other; Python's stack holds some times as many
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*(?:[eE][+-]?\d+)?|inf\b))|(?P<name>[A-Za-z_]\w*)"
    r"|\{(?P<depth>\d{1,3})\}|(?P<sign>[-+*/(),\[\]]))"
)
_BUFFER = re.compile(r"(in|tmp|out)\s+(\w+)\s+(\w+)\s*\[([^\]]*)\]\s*(\w*)")
_DIM = re.compile(r"(\d{1,18})(:r)?")
_SCOPE = re.compile(r"(\d{1,18})(?::(\w*))?")
_OP = re.compile(rf"(\w+\s*\[[^\]]*\])\s*({'|'.join(re.escape(u) for u in UPDATES[1:])}|=)(.*)")


def to_text(program: Program) -> str:
    """Returns the canonical text of a program, ending with a newline."""
    lines = [f"kernel {program.name}", *map(buffer_text, program.buffers), "---"]
    return "\n".join([*lines, *(_node_text(Same(node), 0) for node in program.body)]) + "\n"


def buffer_text(buffer: Buffer) -> str:
    """Returns the header line of a buffer."""
    dims = ",".join(f"{dim.extent}{':r' if dim.reused else ''}" for dim in buffer.dims)
    shown = buffer.kind == "tmp" or buffer.place != "heap"
    place = f" {buffer.place}" if shown else ""
    return f"{buffer.kind} {buffer.name} {buffer.dtype} [{dims}]{place}"


def op_text(op: Op) -> str:
    """Returns the line of an operation, without bars."""
    return f"{expr_text(op.target)} {op.kind} {expr_text(op.expr)}"


def affine_text(form: Affine) -> str:
    """Returns an index: iterators in the order of their depth, then the constant."""
    text = ""
    for depth in form.depths:
        factor = form.coefficient(depth)
        size = "" if abs(factor) == 1 else f"{abs(factor)}*"
        text += f"{'-' if factor < 0 else '+' if text else ''}{size}{{{depth}}}"
    return f"{text}{form.constant:+d}" if text and form.constant else text or str(form.constant)


def expr_text(expr: Expr, rank: int = 0) -> str:
    """Returns an expression with the fewest parentheses that keep its tree.

    Args:
        expr: The expression.
        rank: Below which an operator's own rank asks for parentheses (+ and - have 1, * and / 2).
    """
    if isinstance(expr, Ref):
        return f"{expr.buffer}[{','.join(map(affine_text, expr.indices))}]"
    if isinstance(expr, Const):
        whole = expr.value.is_integer() and abs(expr.value) < 1e15
        return str(int(expr.value)) if whole else repr(expr.value)
    if isinstance(expr, Call):
        return f"{expr.fn}({', '.join(map(expr_text, expr.args))})"
    own = _RANK[expr.op]
    # operators associate to the left: the same rank on the right needs parentheses
    text = f"{expr_text(expr.left, own)} {expr.op} {expr_text(expr.right, own + 1)}"
    return f"({text})" if own < rank else text


@functools.lru_cache(maxsize=PARTS)
def _node_text(same: Same, depth: int) -> str:
    node, bars = same.of, "| " * depth
    if isinstance(node, Op):
        return bars + op_text(node)
    first = f"{bars}{node.extent}{':' if node.mark else ''}{node.mark}"
    return "\n".join([first, *(_node_text(Same(child), depth + 1) for child in node.body)])


def parse(text: str) -> Program:
    """Reads a program from its text; spaces within a line and blank lines do not matter.

    Raises:
        ProgramError: The text breaks the grammar (the message names the line) or the program
            breaks a law.
    """
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    rules = [k for k, (_, line) in enumerate(lines) if line == "---"]
    if not rules:
        raise ProgramError("a line --- parts the buffers from the body; got none")
    cut = rules[0]
    title = lines[0][1].split()
    if len(title) != 2 or title[0] != "kernel":
        raise _wrong(lines[0][0], "the first line is: kernel NAME", lines[0][1])
    buffers = tuple(_parse_buffer(*line) for line in lines[1:cut])
    return Program(title[1], buffers, _parse_body(lines[cut + 1 :]))


def parse_expr(text: str, line: int = 1) -> Expr:
    """Reads one expression; `line` is named in errors."""
    reader = _Reader(text, line)
    try:
        expr = reader.sum()
    except RecursionError:
        raise reader.wrong(f"operands are at most {_DEEPEST} deep") from None
    reader.end()
    depth, level = 0, [expr]
    while level and depth <= _DEEPEST:
        depth, level = depth + 1, [part for e in level for part in _operands(e)]
    if level:
        raise reader.wrong(f"operands are at most {_DEEPEST} deep")
    return expr


def _operands(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Binary):
        return expr.left, expr.right
    return expr.args if isinstance(expr, Call) else ()


def _wrong(line: int, law: str, found: str) -> ProgramError:
    return ProgramError(f"line {line}: {law}; got {found!r}")


def _parse_buffer(number: int, line: str) -> Buffer:
    found = _BUFFER.fullmatch(line)
    dims = found and [_DIM.fullmatch(dim.strip()) for dim in found[4].split(",")]
    if not dims or not all(dims):
        raise _wrong(number, "a buffer is: in|tmp|out NAME DTYPE [EXTENT[:r],..] [PLACE]", line)
    shape = tuple(Dim(int(dim[1]), bool(dim[2])) for dim in dims)
    return Buffer(found[2], found[1], found[3], shape, found[5] or "heap")


def _parse_body(lines: list[tuple[int, str]]) -> tuple[Node, ...]:
    # open scopes from the root: (line, extent, mark, children)
    stack: list[tuple[int, int, str, list[Node]]] = [(0, 1, "", [])]

    def close(depth: int) -> None:
        while len(stack) > depth + 1:
            number, extent, mark, children = stack.pop()
            if not children:
                raise _wrong(number, "a scope has a body", f"{extent}:{mark}")
            stack[-1][3].append(Scope(extent, mark, tuple(children)))

    for number, line in lines:
        rest = line.lstrip("| \t")
        depth = line[: len(line) - len(rest)].count("|")
        if depth >= len(stack) or depth > _DEEPEST:
            most = min(len(stack) - 1, _DEEPEST)
            raise _wrong(number, f"a line here has at most {most} bars", line)
        close(depth)
        scope, op = _SCOPE.fullmatch(rest), _OP.fullmatch(rest)
        if scope:
            stack.append((number, int(scope[1]), scope[2] or "", []))
        elif op:
            target = parse_expr(op[1], number)
            stack[-1][3].append(Op(target, op[2], parse_expr(op[3], number)))
        else:
            law = f"a line is EXTENT[:MARK] or TARGET UPDATE EXPRESSION, updates {UPDATES}"
            raise _wrong(number, law, line)
    close(0)
    return tuple(stack[0][3])


class _Reader:
    """Recursive descent over the tokens of one line."""

    def __init__(self, text: str, line: int):
        self.text, self.line, self.tokens = text, line, []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if not found:
                raise _wrong(line, "an expression holds numbers, names, {depth} and signs", text)
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        self.at = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, sign: str) -> bool:
        found = self.peek() == ("sign", sign)
        self.at += found
        return found

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise self.wrong(f"{sign!r} is expected before {self.peek()[1]!r}")

    def next(self, group: str) -> str:
        found, value = self.peek()
        if found != group:
            raise self.wrong(f"a {group} is expected before {value!r}")
        self.at += 1
        return value

    def wrong(self, law: str) -> ProgramError:
        return _wrong(self.line, law, self.text.strip())

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise self.wrong(f"nothing follows an expression, not {self.peek()[1]!r}")

    def sum(self) -> Expr:
        return self.chain("+-", lambda: self.chain("*/", self.atom))

    def chain(self, signs: str, operand) -> Expr:
        left = operand()
        while self.peek()[0] == "sign" and self.peek()[1] in signs:
            sign = self.next("sign")
            left = Binary(sign, left, operand())
        return left

    def atom(self) -> Expr:
        if self.take("("):
            inner = self.sum()
            self.need(")")
            return inner
        if self.take("-"):
            return Const(-float(self.next("number")))
        if self.peek()[0] == "number":
            return Const(float(self.next("number")))
        name = self.next("name")
        if self.take("["):
            return Ref(name, self.list(self.affine, "]"))
        if name not in FUNCTIONS:
            raise self.wrong(f"{name!r} is no function and lacks its indices")
        self.need("(")
        return Call(name, self.list(self.sum, ")"))

    def list(self, item, closing: str) -> tuple:
        items = [item()]
        while self.take(","):
            items.append(item())
        self.need(closing)
        return tuple(items)

    def affine(self) -> Affine:
        form = self.term(-1 if self.take("-") else 1)
        while self.peek() in (("sign", "+"), ("sign", "-")):
            form = form.plus(self.term(1 if self.next("sign") == "+" else -1))
        return form

    def term(self, sign: int) -> Affine:
        if self.peek()[0] == "number":
            digits = self.next("number")
            if not digits.isdigit() or len(digits) > 18:
                raise self.wrong("an index is made of integers and iterators")
            sign *= int(digits)
            if not self.take("*"):
                return Affine(sign)
        return Affine.iterator(int(self.next("depth")), sign)
