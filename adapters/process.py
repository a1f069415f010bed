"""Any program as an implementation: `--impl=adapters.process --process "CMD"`, JSON lines over stdin and stdout.

The suite writes a start, then cases, then a stop, one object a line; the program answers each but the last with an
object of the same id. `process_schema/messages.json` describes every message, `encoding` the values in them. The
program is started on first use, once a process; where it breaks, the case at hand fails, and the next one starts it
anew.
"""

from __future__ import annotations

import atexit
import json
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from adapters import encoding
from adapters.interface import (
    OPERATIONS,
    AdapterError,
    Arithmetic,
    Broken,
    Declaration,
    Deviation,
    Engine,
    NotApplicable,
)
from adapters.process_channel import Channel, shown

PROTOCOL = "eagle-conformance/process/1"
FORMAT = "eagle-conformance/fixtures/1"
COMMAND = "EAGLE_CONFORMANCE_PROCESS"
"""The environment variable that `--process` sets, so that every process of a run knows the program."""
SECONDS = "EAGLE_CONFORMANCE_PROCESS_SECONDS"
"""Likewise `--process-seconds`: how long the program may take for one answer."""
DEFAULT_SECONDS = 60.0
MOST_NOISE = 20
"""Lines of stdout a message that are no messages and are told; more are counted."""

PARAMETERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **dict.fromkeys(OPERATIONS, ("case",)),
        **dict.fromkeys(("soft_rows", "hard_rows"), ("batch",)),
        **dict.fromkeys(("flatten_tree", "tree_mask", "draft_tree", "rollout_attention"), ("cases",)),
        **dict.fromkeys(("verify_greedy", "publish", "next_law"), ("cases",)),
        "verify_sampled": ("cases", "coins"),
        "verify_random": ("cases", "seed"),
        "interrupted_publish": ("cases", "step"),
        "tree_visibility": ("parent",),
    }
)
"""Operation → the names of its parameters, in order: the keys of a message's input."""

ERRORS = ("bad_input", "not_applicable", "failure", "malformed")


class Refusal(ValueError):
    """The program refuses an input."""


class Failure(RuntimeError):
    """The program says that it failed."""


@dataclass(frozen=True)
class Ready:
    """What a program says of itself when it is started."""

    declaration: Declaration
    operations: tuple[str, ...]


class Program:
    """A command, and what runs of it at the moment: nothing, or one channel."""

    def __init__(self, command: str, seconds: float = DEFAULT_SECONDS) -> None:
        self.command = command
        self.seconds = seconds
        self._channel: Channel | None = None
        self._identity = 0
        self._noise = 0
        self._ready: Ready | None = None
        self._owner = os.getpid()

    @property
    def ready(self) -> Ready:
        """Its declaration, read once. Raises `AdapterError` where it cannot be had."""
        if self._ready is None:
            try:
                self._start()
            except Broken as broken:
                raise AdapterError(f"--process: when it was started, {broken}") from None
        assert self._ready is not None
        return self._ready

    def call(self, operation: str, *arguments: Any) -> Any:
        """What the program answers. Raises what it says, `Broken` where it says nothing, or `NotApplicable`."""
        names = PARAMETERS[operation]
        if len(arguments) != len(names):
            raise AdapterError(
                f"{operation} takes {', '.join(names)}; the suite handed over {len(arguments)} arguments"
            )
        try:
            given = {name: encoding.encode(argument) for name, argument in zip(names, arguments)}
        except encoding.EncodingError as error:
            raise NotApplicable(f"no message carries the case: {error}") from None
        if self._channel is None or not self._channel.alive:
            self._start()
        answer = self._ask({"operation": operation, "input": given})
        return read_answer(answer, operation)

    def _start(self) -> None:
        try:
            self._channel = Channel(shlex.split(self.command), self._tell)
        except (OSError, ValueError, IndexError) as error:
            raise AdapterError(f"--process {self.command!r}: cannot be started: {error}") from None
        self._identity = -1
        answer = self._ask({"start": {"protocol": PROTOCOL, "format": FORMAT}})
        ready = read_ready(answer)
        if self._ready is not None and ready != self._ready:
            self.stop()
            raise Broken("the program was started anew, and declares something else than before")
        self._ready = ready

    def _ask(self, content: Mapping[str, Any]) -> dict[str, Any]:
        assert self._channel is not None
        self._identity += 1
        self._noise = 0
        message = {"id": self._identity, **content}
        try:
            line = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        except (TypeError, ValueError) as error:
            raise AdapterError(f"message {self._identity} cannot be written as JSON: {error}") from None
        return self._channel.ask(self._identity, line, self.seconds)

    def _tell(self, line: bytes) -> None:
        """A program that prints to the stream of its answers prints to the suite's: a check says whether it may."""
        self._noise += 1
        if self._noise <= MOST_NOISE:
            print(shown(line), flush=True)

    def stop(self) -> None:
        """End the program, if it runs and is this process's own, not that of one that was forked."""
        if self._channel is not None and self._channel.alive and self._owner == os.getpid():
            self._channel.stop(json.dumps({"id": self._identity + 1, "stop": True}).encode() + b"\n")


def read_ready(answer: Mapping[str, Any]) -> Ready:
    """A program's answer to its start. Raises `AdapterError`."""
    if set(answer) == {"id", "error"}:
        kind, message, _ = _error(answer["error"])
        raise AdapterError(f"--process: the program does not start: {kind}: {message}")
    value = answer.get("value")
    needed = {"name", "version", "operations", "conventions", "dtype"}
    optional = {"promises", "cost", "links", "deviations", "engine", "coin_dtype"}
    if set(answer) != {"id", "value"} or not isinstance(value, dict):
        raise AdapterError("--process: the answer to the start is {id, value: {…}}, and nothing else")
    if (missing := needed - set(value)) or (unknown := set(value) - needed - optional):
        rule = f"misses {sorted(missing)}" if missing else f"holds {sorted(unknown)}, which it does not know"
        raise AdapterError(f"--process: the program's declaration {rule}")
    operations, conventions = value["operations"], value["conventions"]
    if not _are_texts(operations) or not set(operations) <= set(OPERATIONS) or len(set(operations)) < len(operations):
        raise AdapterError(
            f"--process: operations = {operations!r:.200}: are different names of {', '.join(OPERATIONS)}"
        )
    if not isinstance(conventions, dict) or not _are_texts(list(conventions.values())):
        raise AdapterError(f"--process: conventions = {conventions!r:.200}: an object of texts")
    for name in ("promises", "links"):
        if not _are_texts(value.get(name, [])):
            raise AdapterError(f"--process: {name} = {value[name]!r:.200}: a list of texts")
    if not isinstance(value.get("cost", {}), dict):
        raise AdapterError("--process: cost is an object: operation → seconds a case")
    try:
        declaration = Declaration(
            name=value["name"],
            version=value["version"],
            links=tuple(value.get("links", ())),
            conventions=dict(conventions),
            deviations=tuple(Deviation(**entry) for entry in value.get("deviations", ())),
            arithmetic=Arithmetic(value["dtype"], value.get("coin_dtype", "float64")),
            cost=dict(value.get("cost", {})),
            promises=tuple(value.get("promises", ())),
            engine=None if value.get("engine") is None else Engine(**value["engine"]),
        )
    except TypeError as error:  # a deviation or an engine of other fields
        raise AdapterError(f"--process: the program's declaration: {error}") from None
    return Ready(declaration, tuple(name for name in OPERATIONS if name in operations))


def read_answer(answer: Mapping[str, Any], operation: str) -> Any:
    """The value of an answer. Raises what its error says; `Broken` where it is no answer of the protocol."""
    if set(answer) == {"id", "value"}:
        try:
            return encoding.decode(answer["value"])
        except (encoding.EncodingError, RecursionError) as error:
            raise Broken(f"the program's answer holds what encodes nothing: {error}") from None
    if set(answer) != {"id", "error"}:
        raise Broken(f"the program's answer has the keys {', '.join(sorted(answer))}; it has id, and value or error")
    kind, message, place = _error(answer["error"])
    if kind == "not_applicable":
        raise NotApplicable(message)
    if kind == "bad_input":
        raise Refusal(f"{place}: {message}" if place else message)
    if kind == "failure":
        raise Failure(message)
    raise Broken(f"the program says that it cannot read the message, which is a well-formed one: {message}")


def _error(error: object) -> tuple[str, str, str]:
    """Kind, message and place of an error. Raises `Broken` unless it is one."""
    if isinstance(error, dict) and {"kind", "message"} <= set(error) <= {"kind", "message", "field", "index"}:
        kind, message, field, index = (error.get(name) for name in ("kind", "message", "field", "index"))
        whole = index is None or (isinstance(index, list) and all(type(i) is int for i in index))
        if kind in ERRORS and isinstance(message, str) and isinstance(field, str | None) and whole:
            return kind, message, (field or "") + "".join(f"[{i}]" for i in index or ())
    raise Broken(
        f"the program's error is {{kind, message, field?, index?}} of a kind {', '.join(ERRORS)}: {error!r:.200}"
    )


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


# ---- the adapter: a namespace that the program fills

_running: tuple[int, Program] | None = None


def program() -> Program:
    """The program of this process, as the options name it. Raises `AdapterError`."""
    global _running
    command = os.environ.get(COMMAND, "").strip()
    if not command:
        raise AdapterError('--impl=adapters.process: which program? Name it with --process "CMD"')
    try:
        seconds = float(os.environ.get(SECONDS) or DEFAULT_SECONDS)
    except ValueError:
        raise AdapterError(f"{SECONDS}={os.environ[SECONDS]}: is a number of seconds") from None
    # a fork has no program of its own yet: that of its parent answers its parent
    if _running is None or _running[0] != os.getpid() or _running[1].command != command:
        _running = os.getpid(), Program(command, seconds)
        atexit.register(_running[1].stop)
    return _running[1]


def __getattr__(name: str) -> Any:
    if name == "DECLARATION":
        return program().ready.declaration
    if name in OPERATIONS and name in program().ready.operations:
        return _operation(program(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _operation(running: Program, name: str) -> Callable[..., Any]:
    def ask(*arguments: Any) -> Any:
        return running.call(name, *arguments)

    ask.__name__ = name
    return ask
