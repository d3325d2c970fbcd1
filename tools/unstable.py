"""Tells test cases that were late from those that were wrong, and tries the late ones again.

A case is late if each of its failures is a missed wait: the wait helpers of the tests begin their
text with MISSED_WAIT. On a busy machine that says nothing of the code. run_tests.py therefore runs
a late case of the preset `cpu` again, alone, three times, with the seed of the first run. A case
that passes each time is unstable: it counts as passed, and is named at the end of the run.

What is wrong is never tried again: any other failure, the end of a program by a signal, an abort or
its time-out, a sanitizer's build, and the programs that `never_again` of tests/suites.toml names.

A run passes with at most LISTED_MAX unstable cases that tests/suites.toml lists with what is known
of their cause, and OTHERS_MAX others.
"""

import dataclasses
import json
import pathlib
import re

MISSED_WAIT = "missed wait: "  # as src/testing/await.h and tests/common/waiting.py have it
TRIES = 3
KNOWN_MAX = 10  # cases in the list
LISTED_MAX = 2  # of them in a run
OTHERS_MAX = 1

# GoogleTest shows the text of an AssertionResult behind its value; python_suite.py the exception's
# type before its text.
LATE_FAILURE = re.compile(
    rf"^ +Actual: false \({MISSED_WAIT}|\AMissedWait: {MISSED_WAIT}", re.MULTILINE)
SEED = re.compile(r"^HPS_TEST_SEED=(\d+)$", re.MULTILINE)


@dataclasses.dataclass
class UnstableCase:
    program: str
    case: str
    cause: str  # what tests/suites.toml knows of it; "" if it is not listed
    output: str  # of the program, the first time

    def title(self) -> str:
        return f"{self.program} {self.case}" + (f" (known: {self.cause})" if self.cause else "")


def short_name(program_name: str) -> str:
    """Without preset and folder, as tests/suites.toml has it."""
    return re.split("[ /]", program_name)[-1]


def is_late(failures: list[str]) -> bool:
    """Whether each failure of a case is a missed wait."""
    return bool(failures) and all(LATE_FAILURE.search(failure) for failure in failures)


def late_cases(program_name: str, reason: str, failures: dict[str, list[str]],
               never_again: list[str]) -> list[str]:
    """Cases of a failed program that may be tried again. `reason`: why it counts as failed beyond
    its cases; a program that has one did not just miss a wait."""
    is_cpu = " " not in program_name or program_name.startswith("cpu ")
    if reason or not is_cpu or short_name(program_name) in never_again:
        return []
    return sorted(case for case, messages in failures.items() if is_late(messages))


def seed_of(output: str) -> dict[str, str]:
    """The environment that gives a program the seed of the run that printed `output`."""
    found = SEED.search(output)
    return {"HPS_TEST_SEED": found[1]} if found else {}


def excess(cases: list[UnstableCase]) -> str:
    """Why a run with these unstable cases fails, "" if it does not."""
    listed = sum(bool(case.cause) for case in cases)
    others = len(cases) - listed
    if listed <= LISTED_MAX and others <= OTHERS_MAX:
        return ""
    return (f"{listed} listed and {others} other unstable cases in one run; "
            f"at most {LISTED_MAX} and {OTHERS_MAX}")


def wrong_list(known: dict[str, str], programs: list[str]) -> list[str]:
    """What is wrong with [unstable] of tests/suites.toml."""
    problems = [f"unstable names {name}, which is no `PROGRAM CASE` of a test program"
                for name in known if name.split(" ")[0] not in programs or " " not in name]
    problems += [f"unstable says nothing of the cause of {name}"
                 for name, cause in known.items() if not cause.strip()]
    if len(known) > KNOWN_MAX:
        problems.append(f"unstable lists {len(known)} cases; at most {KNOWN_MAX}")
    return problems


def write(cases: list[UnstableCase], file: pathlib.Path) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps([dataclasses.asdict(case) for case in cases], indent=1))
