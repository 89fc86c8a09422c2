"""The sandbox of templates that come with a tree: no access to Python behind the values, and bounded work.

A template reads the values of a connector, text functions and loops. Files outside its folder, attributes that begin
with _ and functions of Python are refused (see SECURITY.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from pathlib import Path
from types import BuiltinMethodType, TracebackType
from typing import TypeAlias

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from mm2mgr.files import Unreadable, read_bytes, resolved_within

_MOST_TEMPLATE_BYTES = 1_000_000
_MOST_WORK = 10_000_000  # for one connector: characters handled, and STEP for each turn of a loop, call and filter
_MOST_WORK_OF_ALL = 100_000_000  # for all connectors together, what they insert aside
STEP = 50
_NO_USE = ("striptags", "urlize", "xmlattr")  # filters for HTML, slow on odd text
# What makes more of what it gets: as often as a number says, or as often as it finds something.
_GROWING = {
    *("batch", "center", "expandtabs", "format", "format_map", "indent", "join", "ljust", "map", "pprint", "range"),
    *("replace", "rjust", "round", "slice", "sum", "tojson", "translate", "wordwrap", "zfill"),
}
_VALUES = (str, int, float, list, tuple, dict, range)
_OBJECTS = (jinja2.Undefined, Macro, BlockReference, LoopContext, Cycler, Joiner)
_MOST_BITS = 10_000
_SCOPES = ("_loop_vars", "_block_vars")  # what Jinja2's own code adds to calls inside loops and blocks
_PLAIN = (str, int, dict)
_MAKERS = (dict, Cycler, Joiner, Namespace)
_DIGITS = re.compile(r"\d+")


class Overrun(jinja2.TemplateRuntimeError):
    """A template does more work than any connector needs."""


def read_template(folders: Iterable[Path], template: str) -> tuple[str, str]:
    """Return a template's source and path; a link out of its folder, a device or a huge file is refused."""
    for folder in folders:
        path = folder.joinpath(*jinja2.loaders.split_template_path(template))
        if not (path.is_file() or path.is_fifo()):
            continue
        if resolved_within(path, folder) is None:
            raise jinja2.TemplateError(f"{path} is a link that leads out of {folder}: copy the file there")
        try:
            return read_bytes(path, _MOST_TEMPLATE_BYTES).decode("utf-8"), str(path)
        except Unreadable as error:
            raise jinja2.TemplateError(f"{path} {error}") from error
        except UnicodeDecodeError as error:
            raise jinja2.TemplateError(f"{path} is not UTF-8 text (byte {error.start})") from error
    raise jinja2.TemplateNotFound(template)


class Environment(ImmutableSandboxedEnvironment):
    """Compiles and runs templates, which may call `functions`; `begin` starts a connector's budget."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, functions: Mapping[str, Callable[..., object]], **options: object) -> None:
        super().__init__(**options)
        del self.globals["lipsum"]
        self.globals.update(functions)
        self.filters = {
            name: self._bound_filter(name, function) for name, function in self.filters.items() if name not in _NO_USE
        }
        self.step, self.joined, self.weighed = self._step, self._join_parts, self._weigh_value
        own: tuple[object, ...] = self.step, self.joined, self.weighed
        self._own = {id(function) for function in (*functions.values(), *own)}
        self.left, self.left_of_all = _MOST_WORK, _MOST_WORK_OF_ALL

    # --- the budget ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Give the next connector its budget."""
        self.left = _MOST_WORK

    def insert_text(self, value: object) -> str:
        """Return the text of a value that is inserted into a connector; a text itself."""
        if not isinstance(value, str):
            self._take(self._weigh(value))
            return str(value)
        self.left -= len(value)
        if self.left < 0:
            self._take(0)
        return value

    def _take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise Overrun(f"it does more than {_MOST_WORK:,} steps and characters, which no connector needs")

    def spend(self, work: int) -> None:
        """Count work; raises Overrun when it is more than a connector, or all of them, may take."""
        self._take(work)
        self.left_of_all -= work
        if self.left_of_all < 0:
            raise Overrun(f"all connectors together take more than {_MOST_WORK_OF_ALL:,} steps and characters")

    def _step(self, size: int) -> str:
        self.spend(STEP + size)
        return ""

    def _weigh(self, value: object) -> int:
        total, waiting = 0, [value]
        while waiting:
            item = waiting.pop()
            total += 10
            if isinstance(item, str | bytes | range):
                total += len(item)
            elif isinstance(item, int):
                total += item.bit_length() // 64
            elif isinstance(item, Mapping):
                waiting += [*item.keys(), *item.values()]
            elif isinstance(item, list | tuple | set | frozenset):
                waiting += item
            if total + len(waiting) > self.left:
                self.spend(total + len(waiting))
        return total

    def _charge(self, name: str, operands: Sequence[object]) -> None:
        weights = sorted(map(self._weigh, operands))
        work = sum(weights)
        if name in _GROWING and weights:
            times = sum(abs(operand) for operand in operands if isinstance(operand, int))
            if name in ("format", "format_map"):
                texts = (operand for operand in operands if isinstance(operand, str))
                times += sum(int(digits[0][:12]) for text in texts for digits in _DIGITS.finditer(text))
            work = weights[-1] * (1 + times + sum(weights[:-1]))
            if name == "sum" and not isinstance(operands[-1], int | float):
                work *= weights[-1]
        self.spend(STEP + work)

    def _count_values(self, values: Iterable[object]) -> list[object]:
        """Return values with what each iterator among them gives, as long as that is not too much."""
        return [list(map(self._spend_iterator, value)) if isinstance(value, Iterator) else value for value in values]

    def _spend_iterator(self, value: object) -> object:
        self.spend(1 + self._weigh(value))
        return value

    def _bound_filter(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        first = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)
        def run_bounded(*arguments: object, **named: object) -> object:
            values = self._count_values(arguments[first:])
            self._charge(name, (*values, *named.values()))
            return function(*arguments[:first], *values, **named)

        return run_bounded

    # --- what a template may touch ------------------------------------------------------------------------------------

    def is_safe_callable(self, obj: object) -> bool:
        is_known = id(obj) in self._own or any(obj is maker for maker in (self.globals["range"], *_MAKERS))
        method = getattr(obj, "__wrapped__", obj)  # the sandbox's own wrapper of str.format
        owner = getattr(method, "__self__", None)
        is_method = isinstance(method, BuiltinMethodType) and isinstance(owner, _VALUES)
        return is_known or is_method or isinstance(obj, _OBJECTS) or isinstance(owner, _OBJECTS)

    def call(__self, __context: Context, __obj: Callable[..., object], *args: object, **kwargs: object) -> object:
        if id(__obj) in __self._own:
            return __obj(
                *args, **{name: value for name, value in kwargs.items() if name not in _SCOPES} if kwargs else {}
            )
        method = getattr(__obj, "__wrapped__", __obj)
        name = "range" if __obj is __self.globals["range"] else getattr(method, "__name__", type(__obj).__name__)
        if not __self.is_safe_callable(__obj):
            raise SecurityError(f"a template may not call {name}")  # its value may hold secrets
        args = tuple(__self._count_values(args))
        owner = getattr(method, "__self__", None)
        named = (value for key, value in kwargs.items() if key not in _SCOPES)
        __self._charge(name, (*((owner,) if isinstance(owner, _VALUES) else ()), *args, *named))
        return super().call(__context, __obj, *args, **kwargs)

    def getattr(self, obj: object, attribute: str) -> object:
        value = getattr(obj, attribute, None)
        if isinstance(value, _PLAIN) and attribute[0] != "_":
            return value  # most are, and the sandbox looks at each for longer than the rest of rendering takes
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        if operator in ("*", "**") and isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            if bits > _MOST_BITS:
                raise Overrun(f"it creates a number of more than {_MOST_BITS:,} bits")
        elif operator == "*":
            self._charge("replace", (left, right))
        else:
            self._charge("format" if operator == "%" and isinstance(left, str) else operator, (left, right))
        return super().call_binop(context, operator, left, right)

    def _join_parts(self, *parts: object) -> str:
        self._charge("~", parts)
        return "".join(map(str, parts))

    def _weigh_value(self, value: object) -> object:
        self.spend(STEP + self._weigh(value))
        return value

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = _Counting().visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        assert isinstance(tree, nodes.Template)
        return tree


Repeated: TypeAlias = nodes.Template | nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block


class _Counting(NodeTransformer):
    """Puts a step into each body that can run many times, and counts what `~`, lists and maps hold."""

    def _repeat_node(self, node: Repeated) -> nodes.Node:
        size = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(self._of_environment("step", [nodes.Const(size)])).set_lineno(node.lineno))
        return node

    visit_Template = visit_For = visit_Macro = visit_CallBlock = visit_Block = _repeat_node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._of_environment("joined", node.nodes).set_lineno(node.lineno)

    def _literal(self, node: nodes.Expr) -> nodes.Node:
        self.generic_visit(node)
        is_target = getattr(node, "ctx", "load") != "load"
        return node if is_target else self._of_environment("weighed", [node]).set_lineno(node.lineno)

    visit_List = visit_Tuple = visit_Dict = _literal

    @staticmethod
    def _of_environment(name: str, arguments: Iterable[nodes.Expr]) -> nodes.Call:
        return nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None)


def line_of(error: BaseException, folders: Iterable[Path], template: str) -> str:
    """Return `file:line` of the template that an error came from, `template` where no line is known."""
    at, known_folders = template, list(folders)
    trace: TracebackType | None = error.__traceback__
    while trace:
        path = Path(trace.tb_frame.f_code.co_filename)
        name = next((path.relative_to(folder) for folder in known_folders if path.is_relative_to(folder)), None)
        if name and path.suffix != ".py":
            at = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return at
