"""Which test programs there are, and how each is run: what the builds define, and what
tests/suites.toml says of them."""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys

import unstable

ROOT = pathlib.Path(__file__).resolve().parent.parent
SANITIZED = ["asan-ubsan", "tsan"]
PACKAGE_VENV = ROOT / ".venv-python"  # of the tests of the Python package

# Memory that can't be had is a null pointer, as it is without a sanitizer: tests provoke it.
ENVIRONMENT = {
    "asan-ubsan": {
        "ASAN_OPTIONS": "allocator_may_return_null=1:detect_stack_use_after_return=1:"
                        "strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    },
    "tsan": {
        "TSAN_OPTIONS": "allocator_may_return_null=1:second_deadlock_stack=1:history_size=7:"
                        "suppressions=" + str(ROOT / "tools" / "tsan_suppressions.txt"),
    },
}

# What a program's result may depend on, as /proc/cpuinfo names it.
PROCESSOR_FLAGS = ["sse4_2", "avx", "avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512vl",
                   "avx512dq", "avx512_bf16", "amx_tile"]
# The instruction sets that PyTorch can be held to, with a flag of processors that have them.
TORCH_CAPABILITIES = {"default": "", "avx2": "avx2", "avx512": "avx512f"}


@dataclasses.dataclass
class Program:
    name: str  # as shown: "cpu base_test"
    command: list[str]
    timeout_s: float
    environment: dict[str, str]
    is_gtest: bool

    def alone(self, case: str, environment: dict[str, str]) -> "Program":
        """The program with one of its cases."""
        flag = [f"--gtest_filter={case}"] if self.is_gtest else ["--case", case]
        return dataclasses.replace(self, command=self.command + flag,
                                   environment=self.environment | environment)


def processor_flags() -> list[str]:
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return []
    flags = re.search(r"^flags\s*: (.*)$", text, re.MULTILINE)
    has = set(flags[1].split()) if flags else set()
    return [flag for flag in PROCESSOR_FLAGS if flag in has]


def processor() -> str:
    return f"processor: {os.cpu_count()} cores with {' '.join(processor_flags()) or 'no flags'}"


def built_tests(preset: str) -> list[str]:
    """Names of the test programs that the build of `preset` defines."""
    listed = subprocess.run(["ninja", "-C", f"build/{preset}", "-t", "targets", "all"], cwd=ROOT,
                            check=False, capture_output=True, text=True).stdout
    return sorted(re.findall(r"^tests/(\w+_test): ", listed, re.MULTILINE))


def without_address_randomization() -> list[str]:
    """g++ 12's ThreadSanitizer refuses kernels that randomize more address bits than it knows."""
    command = ["setarch", "-R"]
    try:
        works = subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0
    except OSError:
        works = False
    return command if works else []


def gtest_names(preset: str, suites: dict, everything: bool) -> list[str]:
    """The programs of a preset: of a sanitizer those that suites.toml lists, or all that can run
    under it."""
    names = built_tests(preset)
    if preset not in SANITIZED:
        return names
    if not everything:
        return [name for name in names if name in suites["sanitized"][preset]]
    left_out = set(suites["not_sanitized"])
    if preset == "tsan":
        left_out |= set(suites["not_tsan"]["programs"])
    return [name for name in names if name not in left_out]


def gtest_programs(preset: str, suites: dict, everything: bool) -> list[Program]:
    prefix = without_address_randomization() if preset == "tsan" else []
    left_out = suites["without_tsan"] if preset == "tsan" else {}
    timeouts = suites["timeout_s_of"]

    def command(name: str) -> list[str]:
        filters = [f"--gtest_filter=-{left_out[name]}"] if name in left_out else []
        return [*prefix, str(ROOT / "build" / preset / "tests" / name), *filters]

    return [Program(f"{preset} {name}", command(name), timeouts.get(name, suites["timeout_s"]),
                    ENVIRONMENT.get(preset, {}), True)
            for name in gtest_names(preset, suites, everything)]


def python_files(preset: str) -> list[pathlib.Path]:
    """Those of the command; with `cpu` also those that look at no build, or at that one alone."""
    files = sorted((ROOT / "tests").rglob("*_test.py"))
    if preset == "cpu":
        return files + sorted((ROOT / "tools" / "tests").glob("*_test.py"))
    return [file for file in files if file.parent.name == "cli"]


def python_programs(preset: str, suites: dict, everything: bool) -> list[Program]:
    """With `everything`, those whose results depend on PyTorch's instruction set run once more with
    each that the processor has."""
    prefix = "" if preset == "cpu" else f"{preset} "
    environment = {"HPS_COMMAND": str(ROOT / "build" / preset / "bin" / "hps")}

    def program(file: pathlib.Path, name: str, more: dict[str, str]) -> Program:
        venv = PACKAGE_VENV if file.parent.name == "python" else ROOT / ".venv"
        python = venv / "bin" / "python"
        command = [str(python) if python.exists() else sys.executable,
                   str(ROOT / "tools" / "python_suite.py"), str(file)]
        return Program(name, command, suites["timeout_s_of"].get(file.name, suites["timeout_s"]),
                       environment | more, False)

    programs = []
    for file in python_files(preset):
        name = prefix + str(file.relative_to(ROOT))
        programs.append(program(file, name, {}))
        if everything and file.name in suites["by_instruction_set"]["programs"]:
            programs += [program(file, f"torch-{capability} {name}",
                                 {"ATEN_CPU_CAPABILITY": capability})
                         for capability, flag in TORCH_CAPABILITIES.items()
                         if not flag or flag in processor_flags()]
    return programs


def problems(suites: dict) -> list[str]:
    """What suites.toml gets wrong about the programs that there are."""
    tests = built_tests("cpu")
    names = tests + [file.name for file in python_files("cpu")]
    return (undecided(suites, tests) + unstable.wrong_list(suites["unstable"], names)
            + [f"never_again names {name}, which is not a test program"
               for name in suites["never_again"] if name not in names])


def undecided(suites: dict, tests: list[str]) -> list[str]:
    """Names of suites.toml that are no test program, and programs that are listed as both sanitized
    and not."""
    lists = {f"sanitized.{preset}": suites["sanitized"][preset] for preset in SANITIZED}
    lists |= {"not_sanitized": suites["not_sanitized"], "not_tsan": suites["not_tsan"]["programs"],
              "without_tsan": suites["without_tsan"]}
    found = [f"{kind} names {name}, which is not a test program"
             for kind, names in lists.items() for name in names if name not in tests]
    left_out = {"asan-ubsan": set(suites["not_sanitized"])}
    left_out["tsan"] = left_out["asan-ubsan"] | set(suites["not_tsan"]["programs"])
    return found + [f"{name} runs under {preset} and is left out of it" for preset in SANITIZED
                    for name in suites["sanitized"][preset] if name in left_out[preset]]
