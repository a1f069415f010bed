"""The suite as a command: exit codes, options, what a fault of the implementation may and may not take down.

Runs are narrowed to one or two checks at the quick profile, and stay in one process unless the fault kills it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance import plugin
from conformance.report import model
from conformance.verdicts import Verdict
from tests.mine import TWO_CHECKS, adapter, one_sentence
from tests.running import ROOT, SUITE, Suite, environment, run

# ---- exit codes


def test_a_pass_exits_0_and_counts_every_word(suite: Suite) -> None:
    done = suite("-k", "is_a_walk")
    assert done.code == 0, done.output
    assert done.verdict == (
        "3 passed, 0 failed, 0 not provided, 0 not applicable, 0 known deviation, 0 undecidable, 0 excluded, "
        "0 harness error → exit 0"
    )
    assert done.output.splitlines()[-1].strip("= ").startswith("3 passed, ")


def test_a_failure_exits_1(suite: Suite) -> None:
    done = suite(adapter(suite, "return [Decision((), 99) for _ in cases]"), *TWO_CHECKS)
    assert (done.code, done.count("failed"), done.count("passed")) == (1, 1, 1), done.output
    assert "ACCEPTANCE-103 (structure)" in done.output


def test_no_check_run_exits_2(suite: Suite) -> None:
    done = suite("-k", "no_such_check")
    assert done.code == 2, done.output
    assert done.verdict.endswith("→ exit 2")


def test_nothing_but_not_provided_exits_2(suite: Suite) -> None:
    done = suite(adapter(suite), "-k", "is_a_walk and verify_sampled")
    assert (done.code, done.count("not provided")) == (2, 1), done.output


def test_our_own_exception_is_a_harness_error(suite: Suite) -> None:
    suite.write(
        "breaks.py",
        "from conformance import compare\ndef decisions(*_): raise ZeroDivisionError('ours')\n"
        "compare.decisions = decisions\n",
    )
    done = suite("-p", "breaks", "-k", "is_a_walk and verify_greedy")
    assert (done.code, done.count("harness error"), done.count("failed")) == (2, 1, 0), done.output
    assert "the suite raised ZeroDivisionError: ours" in done.output


def test_our_own_crash_is_a_harness_error(suite: Suite) -> None:
    suite.write(
        "breaks.py",
        "import ctypes\nfrom conformance import compare\ncompare.decisions = lambda *_: ctypes.string_at(0)\n",
    )
    done = suite("-p", "breaks", "-k", "is_a_walk and verify_greedy", workers=1)
    assert (done.code, done.count("harness error"), done.count("failed")) == (2, 1, 0), done.output
    assert "the suite itself killed its process" in done.output


def test_a_check_that_breaks_in_teardown_is_a_harness_error(suite: Suite) -> None:
    suite.write(
        "breaks.py",
        "from conformance.journal import Journal\ndef close(self): raise OSError('disk full')\nJournal.close = close\n",
    )
    done = suite("-p", "breaks", "-k", "is_a_walk and verify_greedy")
    assert (done.code, done.count("harness error"), done.count("passed")) == (2, 1, 0), done.output


@pytest.mark.parametrize("workers", [0, 1])
def test_a_check_that_cannot_be_collected_exits_2(suite: Suite, workers: int) -> None:
    suite.write("breaks.py", "import sys\nsys.modules['conformance.acceptance.test_coins'] = None\n")
    done = suite("-p", "breaks", "-k", "is_a_walk and verify_greedy", workers=workers)
    assert done.code == 2, done.output
    assert "test_coins" in done.output


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_that_stops_at_the_first_failure_has_a_verdict(suite: Suite, workers: int) -> None:
    done = suite(adapter(suite, "return [Decision((), 99) for _ in cases]"), *TWO_CHECKS, "-x", workers=workers)
    assert (done.code, done.count("failed")) == (1, 1), done.output


def test_a_failing_test_that_is_not_ours_fails_the_run(suite: Suite) -> None:
    beside = suite.write("test_beside.py", "def test_is_a_walk(): assert False\n")
    done = suite(str(beside), "-k", "is_a_walk and not sampled and not random")
    assert (done.code, done.count("passed"), done.count("failed")) == (1, 1, 0), done.output


# ---- options


def test_the_header_says_what_is_judged(suite: Suite) -> None:
    done = suite(adapter(suite), "-k", "is_a_walk", "--conformance-seed=7")
    assert "conformance: mine 1.0 (--impl=mine)" in done.output
    assert "provides verify_greedy; not provided: " in done.output
    assert "declares none; 0 known deviations; float64 arithmetic" in done.output
    assert "profile quick, seed 7, α ≤ 1e-06 for the run (1e-08 a statistical check)" in done.output


def test_deep_draws_a_seed_and_prints_it(suite: Suite) -> None:
    command = [sys.executable, "-m", "pytest", str(SUITE), "--conformance-profile=deep", "-k", "no_drafts", "-n0"]
    headers = [
        re.search(r"profile deep, seed (\d+) \(drawn anew\)", run(command, ROOT, environment()).output)
        for _ in range(2)
    ]
    assert headers[0] and headers[1] and headers[0][1] != headers[1][1]


def test_an_unknown_profile_is_a_usage_error(suite: Suite) -> None:
    done = suite("--conformance-profile=thorough")
    assert done.code == 4
    assert "thorough" in done.output


@pytest.mark.parametrize(
    ("names", "code", "words"),
    [
        ("trees", 2, "'trees' is neither a contract"),
        ("acceptance, verify", 2, "'verify' is neither a contract"),
        ("acceptance", 0, ""),
        ("verify_greedy,acceptance", 0, ""),
    ],
)
def test_requirements(suite: Suite, names: str, code: int, words: str) -> None:
    done = suite("--require", names, "-k", "is_a_walk and verify_greedy")
    assert done.code == code, done.output
    assert words in done.output


def test_a_required_contract_that_is_missing_is_told(suite: Suite) -> None:
    done = suite(adapter(suite), "--require=manifest", "-k", "is_a_walk and verify_greedy")
    assert done.code == 1, done.output
    assert "MISSING, required: manifest: no check_release" in done.output


def test_a_required_operation_that_is_missing_fails_its_own_checks(suite: Suite) -> None:
    done = suite(adapter(suite), "--require=verify_sampled", "-k", "is_a_walk")
    assert (done.code, done.count("failed"), done.count("not provided")) == (1, 1, 1), done.output
    assert "required, but the adapter has no verify_sampled" in done.output


def test_options_without_the_suite_are_a_usage_error(suite: Suite, tmp_path: Path) -> None:
    unrelated = suite.write("test_unrelated.py", "def test_nothing(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "conformance.plugin", str(unrelated)]
    for option in ("--impl=mine", "--process=x", "--require=tree", "--conformance-seed=0", "--case=x"):
        done = run([*command, option], ROOT, environment())
        assert done.code == 4, done.output
        assert f"{option.partition('=')[0]}: no argument names the suite; add --pyargs conformance" in done.output


def test_the_report_is_written_and_read_again(suite: Suite) -> None:
    file = suite.folder / "made" / "report.json"
    done = suite(adapter(suite, "os.abort"), *TWO_CHECKS, f"--conformance-report={file}")
    found = model.read(file)
    assert (found.spec, found.profile, found.exit_code, found.complete) == ("mine", "quick", done.code, False)
    assert found.counts[Verdict.PASSED.value] == 2


def test_a_report_that_cannot_be_written_exits_2(suite: Suite) -> None:
    done = suite("-k", "is_a_walk and verify_greedy", f"--conformance-report={suite.folder}")
    assert done.code == 2, done.output
    assert f"--conformance-report: {suite.folder}: " in done.output


def test_two_runs_in_one_folder_do_not_meet(suite: Suite) -> None:
    command = suite.arguments("-k", "is_a_walk")
    both = [subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for one in both:
        output, _ = one.communicate(timeout=120)
        assert one.returncode == 0, output


# Their option strings, from their documentation; a clash keeps pytest from starting at all.
OPTIONS_OF_OTHERS = {
    "allure-pytest": "--alluredir --clean-alluredir --allure-no-capture --allure-severities --allure-epics "
    "--allure-features --allure-stories --allure-ids --allure-label --allure-link-pattern --inversion",
    "pytest-asyncio": "--asyncio-mode --asyncio-debug",
    "pytest-bdd": "--cucumberjson --cucumber-json --gherkin-terminal-reporter --generate-missing --feature",
    "pytest-cov": "--cov --cov-reset --cov-report --cov-config --no-cov-on-fail --no-cov --cov-fail-under --cov-append "
    "--cov-branch --cov-precision --cov-context",
    "pytest-django": "--reuse-db --create-db --ds --dc --nomigrations --no-migrations --migrations "
    "--fail-on-template-vars --liveserver",
    "pytest-html": "--html --self-contained-html --css",
    "pytest-json-report": "--json-report --json-report-file --json-report-omit --json-report-summary "
    "--json-report-indent --json-report-verbosity",
    "pytest-order": "--indulgent-ordering --sparse-ordering --order-scope --order-scope-level --order-group-scope "
    "--order-dependencies --order-marker-prefix --error-on-failed-ordering",
    "pytest-randomly": "--randomly-seed --randomly-dont-reset-seed --randomly-dont-reorganize",
    "pytest-repeat": "--count --repeat-scope",
    "pytest-rerunfailures": "--reruns --reruns-delay --only-rerun --rerun-except --rerun-show-tracebacks "
    "--fail-on-flaky --force-reruns",
    "pytest-split": "--store-durations --durations-path --splits --group --splitting-algorithm --clean-durations",
    "pytest-subtests": "--no-subtests-shortletter --no-subtests-reports",
    "pytest-sugar": "--old-summary --force-sugar",
    "pytest-regressions": "--force-regen --with-test-class-names --regen-all",
    "pytest-playwright": "--browser --headed --browser-channel --slowmo --device --output --tracing --video "
    "--screenshot --full-page-screenshot",
    "syrupy": "--snapshot-update --snapshot-details --snapshot-warn-unused --snapshot-default-extension "
    "--snapshot-no-colors --snapshot-patch-pycharm-diff --snapshot-diff-mode",
}


def test_option_names_are_free() -> None:
    class Recorder:
        def __init__(self) -> None:
            self.names: list[str] = []
            self.destinations: list[str] = []

        def getgroup(self, name: str, description: str) -> Recorder:
            return self

        def addoption(self, *names: str, dest: str, **_: Any) -> None:
            self.names += names
            self.destinations.append(dest)

    recorder = Recorder()
    plugin.pytest_addoption(recorder)  # type: ignore[arg-type]
    assert all(name.startswith("--") for name in recorder.names)
    assert all(name.startswith("conformance_") for name in recorder.destinations)
    for other, names in OPTIONS_OF_OTHERS.items():
        assert not set(recorder.names) & set(names.split()), other


# ---- what the suite does to a pytest that is about something else


def test_the_plugin_imports_nothing_that_costs() -> None:
    heavy = {"numpy", "hypothesis", "torch", "oracle", "adapters", "conformance.controller", "conformance.worker"}
    text = f"import sys, conformance.plugin; print(sorted({heavy!r} & set(sys.modules)))"
    assert run([sys.executable, "-c", text], ROOT, environment()).output.strip() == "[]"


def test_another_test_run_is_left_alone(suite: Suite) -> None:
    test = suite.write(
        "test_unrelated.py",
        "import sys\ndef test_nothing():\n"
        "    assert not {'numpy', 'oracle', 'conformance.controller', 'conformance.worker'} & set(sys.modules)\n",
    )
    command = [sys.executable, "-m", "pytest", "-p", "conformance.plugin", "-p", "no:hypothesispytest", test.name]
    done = run(command, suite.folder, environment())
    assert done.code == 0, done.output
    assert "conformance:" not in done.output and "verdict" not in done.output


def test_a_checkout_as_an_argument_passes_the_suite_by() -> None:
    command = [sys.executable, "-m", "pytest", ".", "--collect-only", "-q", "--ignore=tests", "--ignore=bench"]
    done = run(command, ROOT, environment())
    assert done.code == 5, done.output
    assert "conformance/acceptance" not in done.output


def test_collecting_alone_judges_nothing(suite: Suite) -> None:
    done = suite("--impl=no.such.module", "--collect-only", "-q", "-k", "is_a_walk")
    assert done.code == 0, done.output
    assert "test_structure.py" in done.output


# ---- adapters that cannot be judged


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot import 'mine'"),
        ("import no_such_package", "cannot import 'mine': No module named 'no_such_package'"),
        ("1 / 0", "importing 'mine' raised ZeroDivisionError"),
        ("", "an adapter defines DECLARATION, an adapters.interface.Declaration; found nothing"),
        ("DECLARATION = {}", "found dict"),
        (
            "from adapters.interface import *\nDECLARATION = Declaration('mine', '1')",
            "provides none of the operations: nothing to check",
        ),
        (
            "from adapters.interface import *\nDECLARATION = Declaration('mine', '1')\n"
            "def verify_greedy(cases): return [((), 0) for _ in cases]",
            "decisions[0] is a tuple, not a Decision with path and frontier",
        ),
        (
            "from adapters.interface import *\nDECLARATION = Declaration('mine', '1')\n"
            "def verify_greedy(cases): return []",
            "the batch of 1 cases returned 0 decisions",
        ),
        (
            "from adapters.interface import *\nDECLARATION = Declaration('mine', '1')\n"
            "def verify_greedy(case): return case.parent",
            "AttributeError: 'list' object has no attribute 'parent'",
        ),
        ("import ctypes; ctypes.string_at(0)", "smoke step, importing the adapter: the process died of signal"),
        ("import os; os._exit(0)", "smoke step, importing the adapter: the process ended with code 0"),
    ],
)
def test_an_adapter_that_cannot_be_judged_exits_2(suite: Suite, text: str | None, message: str) -> None:
    if text is not None:
        suite.write("mine.py", text)
    done = suite("--impl=mine")
    assert done.code == 2, done.output
    assert message in done.output
    assert "Traceback" not in done.output


def test_a_name_clash_is_told_in_one_sentence(suite: Suite) -> None:
    suite.write("adapters/__init__.py", "")
    done = suite(where=suite.folder)
    assert done.code == 2
    assert one_sentence(done) == (
        f"the name 'adapters' resolves to {suite.folder / 'adapters'}, which hides the suite's own package "
        f"{ROOT / 'adapters'}: rename that folder, or run from another one"
    )


# ---- faults take down one check


@pytest.mark.parametrize(
    ("fault", "workers", "reason"),
    [
        ("raise RuntimeError('boom')", 0, "verify_greedy raised RuntimeError: boom (mine.py:11)"),
        ("sys.exit(3)", 0, "verify_greedy left by sys.exit(3)"),
        ("return None", 0, "the result is a NoneType, not a list of decisions"),
        ("ctypes.string_at(0)", 1, "the implementation killed its process (a crash or an exit)"),
        ("os._exit(0)", 1, "the implementation killed its process (a crash or an exit)"),
        ("time.sleep(600)", 1, "the implementation gave no answer within 5 s"),
    ],
    ids=["raise", "sys.exit", "return None", "segmentation fault", "os._exit", "hang"],
)
def test_a_fault_takes_down_one_check(suite: Suite, fault: str, workers: int, reason: str) -> None:
    done = suite(adapter(suite, fault), *TWO_CHECKS, "--timeout=5", workers=workers)
    assert done.code == 1, done.output
    assert (done.count("failed"), done.count("passed"), done.count("harness error")) == (1, 1, 0), done.output
    assert done.reason == reason
    assert "a chain of 0 drafts over 3 tokens" in done.output, done.output
    assert "--case " in done.command


@pytest.mark.parametrize("workers", [0, 1])
def test_what_an_implementation_prints_takes_down_nothing(suite: Suite, workers: int) -> None:
    noise = "print('noise ' * 20000); os.write(1, b'\\x00\\xff' * 50000)"
    done = suite(adapter(suite, noise), *TWO_CHECKS, workers=workers)
    assert (done.code, done.count("passed")) == (0, 2), done.output
    assert "noise noise" not in done.output
