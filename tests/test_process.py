"""Programs that are judged over JSON lines, and all that they can do wrong: the case at hand fails, the run goes on."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from adapters import encoding, process, process_channel, reference
from adapters.interface import OPERATIONS, AdapterError, Broken, NotApplicable, load
from adapters.process import PARAMETERS, Failure, Program, Refusal
from conformance import handout, smoke
from oracle.types import CandidateTree, SelectionCase
from tests.running import ROOT

SCHEMA = json.loads((ROOT / "adapters" / "process_schema" / "messages.json").read_text(encoding="utf-8"))
TINY = """
import json, os, signal, subprocess, sys, time
READY = {"name": "tiny", "version": "1", "operations": ["select_nodes"], "conventions": {}, "dtype": "float64"}
def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()
def say(identity, **content):
    write(json.dumps({"id": identity, **content}) + "\\n")
for line in sys.stdin:
    message = json.loads(line)
    me = message["id"]
    if "stop" in message:
        @stop
        break
    if "start" in message:
        @start
        continue
    if message["input"]["case"]["budget"]:
        @body
    else:
        say(me, value=[0])
"""
TREE = CandidateTree(np.array([-1]), np.array([5]), np.array([0.5]), np.log([0.5]), np.array([1]))
EASY, FATEFUL = SelectionCase(TREE, 0), SelectionCase(TREE, 1)
Tiny = Callable[..., Program]


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Tiny]:
    """A program that answers the easy case, and does what its body says with the other one."""
    made: list[Program] = []

    def make(body: str = "", start: str = "say(0, value=READY)", stop: str = "", seconds: float = 20) -> Program:
        text = TINY.replace("@body", body or "pass").replace("@start", start).replace("@stop", stop or "pass")
        path = tmp_path / f"tiny_{len(made)}.py"
        path.write_text(text, encoding="utf-8")
        made.append(Program(f"{sys.executable} {path}", seconds))
        return made[-1]

    yield make
    for one in made:
        one.stop()


# ---- what breaks


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.stderr.write('last words\\n'); sys.exit(3)", "the program ended with code 3\n  on stderr:\n  last words"),
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "the program died of SIGSEGV"),
        ('write(\'{"id": 1, "val\'); os._exit(0)', 'ended with code 0 in the middle of a line: {"id": 1, "val'),
        ("os.close(1); time.sleep(60)", "the program closed its stdout"),
        ("subprocess.Popen(['sleep', '60']); os._exit(5)", "the program ended with code 5"),
        ("say(me + 1, value=[0])", "answered a message 3 where message 2 was asked"),
        ("say(str(me), value=[0])", "answered a message '2' where message 2 was asked"),
        ("say(me - 1, value=[0])", "answered a message 1 where message 2 was asked"),
        ('write(\'{"id": %d, "value": NaN}\\n\' % me)', "no line of JSON (NaN is no number of JSON)"),
        ('write(\'{"id": %d, "id": %d}\\n\' % (me, me))', "no line of JSON (a key stands twice in one object)"),
        ("write('{\"id\": %d, \"value\": %s}\\n' % (me, '[' * 10**5 + ']' * 10**5))", "(nested too deeply)"),
        (
            "write('at 50% '); say(me, value=[0])",
            "no line of JSON (Expecting value: line 1 column 1 (char 0)): at 50% {",
        ),
        ("say(me)", "answer has the keys id; it has id, and value or error"),
        ("say(me, value=1, error={'kind': 'failure', 'message': ''})", "answer has the keys error, id, value"),
        ("say(me, error={'kind': 'tired', 'message': ''})", "the program's error is {kind, message, field?, index?}"),
        ("say(me, error='tired')", "the program's error is {kind, message, field?, index?}"),
        ("say(me, error={'kind': 'malformed', 'message': 'what?'})", "which is a well-formed one: what?"),
        (
            "say(me, value={'dtype': 'float64', 'shape': [2], 'data': [1]})",
            "encodes nothing: value.data: shape [2] holds",
        ),
        ("say(me, value={'type': 'os.system'})", "encodes nothing: value.type: 'os.system' is no dataclass"),
        ("say(me, value={'nodes': [0]})", "encodes nothing: value: an object is"),
    ],
)
def test_what_breaks_fails_one_case(tiny: Tiny, body: str, words: str) -> None:
    program = tiny(body)
    assert program.call("select_nodes", EASY) == [0]
    with pytest.raises(Broken) as broken:
        program.call("select_nodes", FATEFUL)
    assert words in str(broken.value)
    assert program.call("select_nodes", EASY) == [0], "the next case starts it anew"


@pytest.mark.parametrize(
    "body", ["time.sleep(60)", "write('{\"id\": 2,'); time.sleep(60)", "os.kill(0, signal.SIGSTOP)"]
)
def test_what_hangs_is_ended(tiny: Tiny, body: str) -> None:
    program = tiny(body, seconds=1.5)
    assert program.call("select_nodes", EASY) == [0]
    start = time.monotonic()
    with pytest.raises(Broken, match=r"the program gave no answer within 1\.5 s"):
        program.call("select_nodes", FATEFUL)
    assert 1.4 < time.monotonic() - start < 5
    assert program.call("select_nodes", EASY) == [0]


def test_a_program_that_reads_nothing_blocks_nobody(tiny: Tiny) -> None:
    program = tiny(start="say(0, value=READY); time.sleep(60)", seconds=1.5)
    many = np.zeros(10**5)
    with pytest.raises(Broken, match=r"no answer within 1\.5 s"):
        program.call("select_nodes", SelectionCase(CandidateTree(*[many] * 5), 1))


def test_a_giant_line_ends_it(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_channel, "LIMIT_LINE", 10**5)
    program = tiny("write('x' * 10**6)")
    with pytest.raises(Broken, match="wrote a line of more than 100000 bytes: xxx"):
        program.call("select_nodes", FATEFUL)


def test_a_second_answer_is_told_at_the_next_case(tiny: Tiny) -> None:
    program = tiny("say(me, value=[0]); say(me, value=[0])")
    assert program.call("select_nodes", FATEFUL) == [0]
    with pytest.raises(Broken, match="answered a message 1 where message 2 was asked"):
        program.call("select_nodes", EASY)


def test_what_it_started_goes_with_it(tiny: Tiny, tmp_path: Path) -> None:
    file = tmp_path / "child"
    program = tiny(f"open({str(file)!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid)); os._exit(0)")
    with pytest.raises(Broken):
        program.call("select_nodes", FATEFUL)
    child = int(file.read_text())
    for _ in range(50):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    raise AssertionError("a process that the program started outlives it")


# ---- what does not


def test_megabytes_on_stderr_are_read_and_forgotten(tiny: Tiny) -> None:
    program = tiny("sys.stderr.write('noise ' * 10**6); sys.stderr.flush(); say(me, value=[0])")
    for _ in range(3):
        assert program.call("select_nodes", FATEFUL) == [0]
    assert program._channel is not None and len(program._channel._errors) <= process_channel.KEPT_ERRORS


def test_lines_that_are_no_message_are_passed_over_and_told(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["hello", "", "[1, 2]", '{"step": 3}', "{half", "5", '"text"']
    program = tiny(f"write({chr(10).join(lines)!r} + chr(10)); say(me, value=[0]); write('bye\\n')")
    assert program.call("select_nodes", FATEFUL) == [0]
    assert program.call("select_nodes", EASY) == [0]
    assert capsys.readouterr().out.split("\n") == [*filter(None, lines), "bye", ""]


def test_a_flood_of_lines_is_told_in_part(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    program = tiny("write('noise\\n' * 100_000); say(me, value=[0])")
    assert program.call("select_nodes", FATEFUL) == [0]
    assert capsys.readouterr().out == "noise\n" * process.MOST_NOISE


def test_bytes_that_are_no_text_are_a_line_like_others(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    body = "sys.stdout.buffer.write(b'\\xff\\x00\\x1b[31m\\n'); say(me, value=[0])"
    assert tiny(body).call("select_nodes", FATEFUL) == [0]
    assert capsys.readouterr().out == "�\\x00\\x1b[31m\n"


def test_an_answer_in_pieces_is_one(tiny: Tiny) -> None:
    program = tiny('[(write(c), time.sleep(0.01)) for c in \'{"id": %d, "value": [7]}\\r\\n\' % me]')
    assert program.call("select_nodes", FATEFUL) == [7]


@pytest.mark.parametrize("stop", ["time.sleep(60)", "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"])
def test_a_program_that_does_not_stop_is_ended(tiny: Tiny, stop: str) -> None:
    program = tiny(stop=stop)
    program.call("select_nodes", EASY)
    assert program._channel is not None
    running = program._channel._process
    start = time.monotonic()
    program.stop()
    assert running.poll() == -9 and time.monotonic() - start < 5
    program.stop()


def test_a_program_is_asked_to_stop(tiny: Tiny, tmp_path: Path) -> None:
    program = tiny(stop=f"open({str(tmp_path / 'stopped')!r}, 'w').close()")
    program.call("select_nodes", EASY)
    program.stop()
    assert (tmp_path / "stopped").exists()


def test_a_fork_leaves_the_program_to_its_parent(tiny: Tiny) -> None:
    program = tiny()
    program.call("select_nodes", EASY)
    child = multiprocessing.get_context("fork").Process(target=program.stop)
    child.start()
    child.join(20)
    assert program.call("select_nodes", EASY) == [0] and program._identity == 2, "it was not started again"


# ---- what a program says


def test_errors_have_kinds(tiny: Tiny) -> None:
    def told(error: dict[str, Any]) -> Program:
        return tiny(f"say(me, error={error!r})")

    place = {"kind": "bad_input", "message": "is no budget", "field": "case.budget", "index": [2, 0]}
    with pytest.raises(Refusal, match=r"^case\.budget\[2\]\[0\]: is no budget$"):
        told(place).call("select_nodes", FATEFUL)
    with pytest.raises(NotApplicable, match="chains alone"):
        told({"kind": "not_applicable", "message": "chains alone"}).call("select_nodes", FATEFUL)
    with pytest.raises(Failure, match="out of memory"):
        told({"kind": "failure", "message": "out of memory"}).call("select_nodes", FATEFUL)


def test_what_no_message_carries_is_not_applicable(tiny: Tiny) -> None:
    with pytest.raises(NotApplicable, match="no message carries the case"):
        tiny().call("select_nodes", SelectionCase(TREE, 2**60))


def test_what_the_suite_does_wrong_is_not_the_programs(tiny: Tiny) -> None:
    with pytest.raises(AdapterError, match="select_nodes takes case; the suite handed over 2 arguments"):
        tiny().call("select_nodes", EASY, EASY)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("sys.exit('no model')", "when it was started, the program ended with code 1\n  on stderr:\n  no model"),
        ("time.sleep(60)", "when it was started, the program gave no answer within 1 s"),
        ("say(0, error={'kind': 'failure', 'message': 'no model'})", "the program does not start: failure: no model"),
        ("say(0, value=[])", "the answer to the start is {id, value: {…}}"),
        ("del READY['dtype']; say(0, value=READY)", "the program's declaration misses ['dtype']"),
        ("say(0, value=READY | {'colour': 1})", "declaration holds ['colour'], which it does not know"),
        (
            "say(0, value=READY | {'operations': ['select_node']})",
            "operations = ['select_node']: are different names of",
        ),
        ("say(0, value=READY | {'conventions': {'coin_scheme': 1}})", "an object of texts"),
        ("say(0, value=READY | {'promises': 'seed'})", "promises = 'seed': a list of texts"),
        ("say(0, value=READY | {'cost': 1})", "cost is an object"),
        ("say(0, value=READY | {'engine': {'size': 1}})", "unexpected keyword argument 'size'"),
        ("say(0, value=READY | {'dtype': 'float80'})", "DECLARATION.arithmetic.dtype = 'float80': is one of"),
        ("say(0, value=READY | {'conventions': {'top_k_ties': 'some'}})", "is one of exact, keep"),
    ],
)
def test_a_program_that_cannot_be_judged(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, start: str, words: str) -> None:
    monkeypatch.setenv(process.COMMAND, tiny(start=start).command)
    monkeypatch.setenv(process.SECONDS, "1" if "sleep" in start else "20")
    with pytest.raises(AdapterError) as error:
        load("adapters.process")
    assert words in str(error.value)


@pytest.mark.parametrize("command", ["no-such-program --now", "/dev/null", "'open quote", "''"])
def test_a_command_that_is_none(command: str) -> None:
    with pytest.raises(AdapterError, match="cannot be started"):
        Program(command).ready  # noqa: B018


def test_a_program_that_changes_its_mind_is_told(tiny: Tiny, tmp_path: Path) -> None:
    file = tmp_path / "starts"
    count = f"open({str(file)!r}, 'a').write('x'); READY['version'] = str(os.path.getsize({str(file)!r}))"
    program = tiny("sys.exit(1)", start=f"{count}; say(0, value=READY)")
    assert program.ready.declaration.version == "1"
    with pytest.raises(Broken, match="ended with code 1"):
        program.call("select_nodes", FATEFUL)
    with pytest.raises(Broken, match="was started anew, and declares something else than before"):
        program.call("select_nodes", EASY)


# ---- messages and their schema


def test_every_message_of_the_suite_keeps_to_the_schema(tiny: Tiny, tmp_path: Path) -> None:
    file = tmp_path / "messages"
    program = tiny(f"open({str(file)!r}, 'a').write(line); say(me, value=[0])")
    file.write_text("", encoding="utf-8")
    for case in (FATEFUL, SelectionCase(CandidateTree(*[np.array([np.nan, np.inf, -np.inf, 0.1])] * 5), 3)):
        program.call("select_nodes", case)
    sent = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [message["id"] for message in sent] == [1, 2]
    start = {"id": 0, "start": {"protocol": process.PROTOCOL, "format": process.FORMAT}}
    for kind, message in [("start", start), ("stop", {"id": 3, "stop": True}), *(("case", one) for one in sent)]:
        jsonschema.validate(message, SCHEMA | {"oneOf": [{"$ref": f"#/$defs/{kind}"}]})


# ---- fidelity


def test_parameters_are_those_of_the_operations() -> None:
    assert set(PARAMETERS) == set(OPERATIONS)
    for name, names in PARAMETERS.items():
        signature = inspect.signature(getattr(reference, name))
        assert list(signature.parameters)[: len(names)] == list(names), name


def test_cases_and_answers_survive_the_journey(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program is handed and what it answers is what an adapter in this process is handed and answers."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    program = Program(f"{sys.executable} -m tests.reference_program")
    seen = set()
    for contract, easy in smoke.EASY.items():
        for operation in smoke.CONTRACTS[contract]:
            for case in easy(operation, reference.DECLARATION)[0]:
                arguments = case if isinstance(case, tuple) else (case,)
                try:
                    direct = getattr(reference, operation)(*handout.copy(arguments))
                except NotApplicable:
                    continue
                there = program.call(operation, *handout.copy(arguments))
                assert encoding.encode(there) == encoding.encode(direct), operation
                seen.add(operation)
    program.stop()
    assert seen >= {name for contract in smoke.EASY for name in smoke.CONTRACTS[contract]}
