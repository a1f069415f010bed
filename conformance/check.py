"""What a test of the suite works with: the implementation, guarded; cases, drawn; evidence, weighed.

Every check goes one way: a case is written to disk, the implementation is called, the result compared.
Whatever the implementation does wrong on the way (raise, exit, print) ends as a `ClauseViolation` of
this check; whatever else goes wrong is the suite's own fault and is called so.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from adapters.interface import AdapterError, Arithmetic, Broken, Implementation, NotApplicable
from conformance import casefile
from conformance.evidence import EProcess, Statement, detectable_distance
from conformance.journal import Journal
from conformance.printed import stdout_to
from conformance.profiles import ALPHA_OF_A_CHECK, POWER, Profile
from conformance.verdicts import CheckOutcome, ClauseViolation, HarnessError, Inapplicable, NotProvided, Undecidable

Case = TypeVar("Case")
CHUNKS = 20
LEAST_TRIALS = 400
"""Fewer would see no distance worth a pass; slow implementations wait for these."""
LEAST_EXAMPLES = 10
CALLS_AN_EXAMPLE = 12
"""About how many cases a drawn example puts through the implementation."""
DEFAULT_COST = 3e-4
SUITE_COST = 5e-5
"""Seconds that the suite itself spends on a case: a faster implementation is not asked more often."""


@dataclass
class Check:
    """One test of the suite at work. `name` is stable: contract/file::test[parameters]."""

    name: str
    contract: str
    clauses: tuple[str, ...]
    implementation: Implementation
    profile: Profile
    seed: int
    journal: Journal
    replay: Any = None
    witnesses: tuple[Any, ...] = ()
    """Cases that show a known deviation from one of the clauses: they are run before the others."""
    statistics: list[Statement] = field(default_factory=list)
    observed: dict[str, str] = field(default_factory=dict)
    compared: int = 0
    weighed: int = 0
    """Comparisons of which was asked whether this precision decides them."""
    undecided: int = 0
    skipped: list[str] = field(default_factory=list)
    printed: bytes = b""
    case: Any = None
    needed: set[str] = field(default_factory=set)
    """The operations that the check asked to be there."""

    # ---- the implementation

    @property
    def arithmetic(self) -> Arithmetic:
        return self.implementation.declaration.arithmetic

    @property
    def is_oracle(self) -> bool:
        return self.implementation.declaration.is_oracle

    def convention(self, name: str, default: str) -> str:
        return self.implementation.declaration.conventions.get(name, default)

    def require(self, *operations: str) -> None:
        """End as "not provided" unless the adapter has all of `operations`."""
        missing = [name for name in operations if name not in self.implementation.operations]
        if missing:
            raise NotProvided(f"the adapter has no {' and no '.join(missing)}", missing)
        self.needed.update(operations)

    def call(self, operation: str, *arguments: Any) -> Any:
        """Call an operation of the implementation; its exceptions and exits are its faults.

        A refusal with `NotApplicable` ends the case, not the check; an `AdapterError` is the adapter's.
        """
        self.require(operation)
        function = self.implementation.operations[operation]
        self.journal.calling()
        try:
            with stdout_to(self._keep_output):
                return function(*arguments)
        except NotApplicable as reason:
            raise Inapplicable(str(reason) or "the adapter gives no reason") from None
        except AdapterError as error:
            raise HarnessError(f"the adapter is at fault: {error}") from error
        except Broken as reason:
            raise ClauseViolation(f"{operation}: {reason}", self.case) from None
        except SystemExit as error:
            raise ClauseViolation(f"{operation} left by sys.exit({error.code!r})", self.case) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever it raises is its own
            raise Raised(operation, error, self.case) from error
        finally:
            self.journal.idle()

    def refuses(self, operation: str, *arguments: Any) -> None:
        """`ClauseViolation` unless the call raises."""
        try:
            self.call(operation, *arguments)
        except Raised:
            return
        raise ClauseViolation("the case was answered, and not refused", self.case)

    def _keep_output(self, text: bytes) -> None:
        self.printed = (self.printed + text)[:4096]

    # ---- cases

    def for_all(
        self,
        strategy: st.SearchStrategy[Case],
        body: Callable[[Case], object],
        examples: int = 0,
        first: Sequence[Case] = (),
    ) -> None:
        """Run `body` on the cases of `first`, then on drawn ones, and end on the smallest of these that fails."""
        if self.replay is not None:
            self._run(body, self.replay)
            return self._settle()
        for case in first:
            self._run(body, case)

        @hypothesis.seed(self.seed)
        @self._settings(self.examples(examples or self.profile.examples))
        @hypothesis.given(strategy)
        def drawn(case: Case) -> None:
            text = self._text(case)
            if shrinking and time.monotonic() > shrinking[0] + self.profile.shrink_seconds and text not in failed:
                return  # time is up: the search ends at the smallest case it has found
            try:
                self._run(body, case, text)
            except CheckOutcome:
                shrinking.append(time.monotonic())
                failed.add(text)
                raise

        failed: set[str] = set()
        shrinking: list[float] = []
        try:
            drawn()
        except hypothesis.errors.Flaky as error:
            raise _violation_inside(error) from error
        return self._settle()

    def drive(
        self,
        machine: Callable[[Search], RuleBasedStateMachine],
        body: Callable[[Case], object],
        runs: int,
        steps: int,
        first: Sequence[Case] = (),
    ) -> None:
        """Run `body` on the histories of `first`; then let a state machine make `runs` of so many steps.

        The machine hands each step to its `Search`, with the history up to it, and is told there whether it failed.
        """
        if self.replay is not None:
            self._run(body, self.replay)
            return self._settle()
        for case in first:
            self._run(body, case)
        search = Search(self)
        settings = hypothesis.settings(
            self._settings(runs), stateful_step_count=steps, verbosity=hypothesis.Verbosity.quiet
        )
        try:
            made: Any = hypothesis.seed(self.seed)(lambda: machine(search))
            run_state_machine_as_test(made, settings=settings)
        except (TimeUp, hypothesis.errors.Flaky) as error:
            if not search.over or search.smallest is None:
                raise _violation_inside(error) from error
            text, history = search.smallest
            self._run(body, history, text)
            raise HarnessError("the check is not repeatable: what failed once does not fail again") from None
        return self._settle()

    def _settings(self, examples: int) -> hypothesis.settings:
        return hypothesis.settings(
            max_examples=examples,
            database=None,
            deadline=None,
            derandomize=False,
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=(hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if self.profile.shrink_seconds else [])),
        )

    def examples(self, wanted: int) -> int:
        """`wanted` cases, or as many as this profile's time buys of the slowest operation needed, a few at least."""
        slowest = max((self.cost(name) for name in self.needed or self.implementation.operations), default=DEFAULT_COST)
        return min(wanted, max(LEAST_EXAMPLES, int(self.profile.seconds / (CALLS_AN_EXAMPLE * slowest))))

    def for_each(
        self, cases: Sequence[Case], body: Callable[[Case], object], told: Callable[[Case], str] | None = None
    ) -> None:
        """Run `body` on each of `cases`, or on the replayed one alone; `told` writes down a case that no file holds."""
        first = [case for case in cases if any(case is witness for witness in self.witnesses)]
        rest = [case for case in cases if not any(case is witness for witness in self.witnesses)]
        for case in [self.replay] if self.replay is not None else [*first, *rest]:
            self._run(body, case, told(case) if told else "")
        self._settle()

    def _text(self, case: Any) -> str:
        """The case as its file would hold it."""
        return casefile.dumps(casefile.CaseFile(self.contract, self.name, self.clauses, case))

    def _run(self, body: Callable[[Any], object], case: Any, text: str = "") -> None:
        self.case = case
        self.journal.write(text or self._text(case))
        try:
            body(case)
        except Inapplicable as outcome:
            self.skipped.append(outcome.reason)
            return
        except ClauseViolation as violation:
            if violation.case is None:
                violation.case = case
            raise
        self.compared += 1

    def _settle(self) -> None:
        """No case that said anything is no pass."""
        if self.compared == 0:
            if self.skipped:
                raise Inapplicable(self.skipped[-1])
            raise HarnessError("the check ran no case")
        if self.undecided and self.undecided >= max(self.compared, self.weighed):
            raise Undecidable(f"all {self.undecided} comparisons lie within rounding of a tie")

    def decided(self, decidable: bool) -> None:
        """Count a comparison that this precision cannot decide."""
        self.weighed += 1
        self.undecided += not decidable

    def observe(self, convention: str, value: str) -> None:
        """Report a convention seen at work."""
        self.observed[convention] = value

    # ---- evidence

    def trials(self, operation: str, share: float = 1.0, least: int = LEAST_TRIALS) -> int:
        """How many cases of `operation` this profile's time buys at the declared cost; `least` in any case."""
        affordable = int(share * self.profile.seconds / max(self.cost(operation), SUITE_COST))
        return max(least, min(self.profile.trials, affordable))

    def cost(self, operation: str) -> float:
        """Seconds a case of `operation` takes, as declared."""
        return self.implementation.declaration.cost.get(operation, DEFAULT_COST)

    def weigh(
        self,
        null: str,
        law: Sequence[float],
        sample: Callable[[int, int], Sequence[int]],
        trials: int,
        alpha: float = ALPHA_OF_A_CHECK,
    ) -> EProcess:
        """Test counts against `law` by an e-process, chunk by chunk, and stop at the first alarm.

        `sample(n, seed)` returns the counts of n fresh trials. The statement of what the test could see
        joins the report; the caller raises the violation, so that it can say what was observed.
        """
        process = EProcess(law, alpha)
        size = max(1, trials // CHUNKS)
        for chunk in range(CHUNKS):
            process.update(sample(size, self.seed * 1_000 + chunk))
            if process.alarmed:
                break
        self.state(null, process, size * CHUNKS)
        return process

    def state(self, null: str, process: EProcess, trials: int) -> None:
        """Put on record what `process` tested and what it could have seen in `trials`."""
        law = tuple(process.law)
        self.statistics.append(
            Statement(
                null=null,
                alpha=process.alpha,
                trials=process.observations,
                categories=len(law),
                distance=detectable_distance(law, process.alpha, trials, POWER),
                power=POWER,
                alarmed=process.alarmed,
                log_evidence=process.largest,
            )
        )
        if not process.alarmed and self.statistics[-1].distance >= 1:
            raise Undecidable(f"{trials} trials are too few to see any distance with power ≥ {POWER}")


class TimeUp(BaseException):
    """Leaves Hypothesis: no more time is spent on making a failure smaller.

    It catches every `Exception`, and may find, on this way out, that the test drew less than it did before.
    """


class Search:
    """What a state machine hands its steps to; it keeps the smallest history that failed."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.smallest: tuple[str, Any] | None = None
        self.began = 0.0
        self.over = False

    def step(self, history: Any, act: Callable[[], object]) -> None:
        """`act` takes the last step of the history. Raises `TimeUp`."""
        if self.smallest and time.monotonic() > self.began + self.check.profile.shrink_seconds:
            self.over = True
            raise TimeUp
        text = self.check._text(history)
        try:
            self.check._run(lambda _: act(), history, text)
        except CheckOutcome:
            if self.smallest is None:
                self.began = time.monotonic()
            if self.smallest is None or (len(text), text) < (len(self.smallest[0]), self.smallest[0]):
                self.smallest = text, history
            raise


class Raised(ClauseViolation):
    """The implementation raised; checks that expect a refusal catch this one."""

    def __init__(self, operation: str, error: BaseException, case: object) -> None:
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last else ""
        super().__init__(f"{operation} raised {type(error).__name__}: {error}{where}", case)
        self.error = error

    def traceback(self, frames: int = 6) -> str:
        """The implementation's own frames, the innermost last."""
        frame = self.error.__traceback__
        while frame is not None and Path(frame.tb_frame.f_code.co_filename).name == Path(__file__).name:
            frame = frame.tb_next
        lines = traceback.format_exception(type(self.error), self.error, frame, limit=-frames, chain=False)
        return "".join(lines).rstrip()


def _violation_inside(error: BaseException) -> CheckOutcome:
    """The violation behind Hypothesis's Flaky: the implementation answered twice differently."""
    pending: list[BaseException] = [error]
    while pending:
        found = pending.pop()
        if isinstance(found, ClauseViolation):
            found.reason += " (and answered otherwise when asked again)"
            return found
        pending.extend(getattr(found, "exceptions", ()))
        pending.extend(e for e in (found.__cause__, found.__context__) if e is not None)
    return HarnessError(f"the check is not repeatable: {error}")
