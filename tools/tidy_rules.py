"""The rules of tools/tidy.py about single files. Each yields (line, rule, message)."""

import ast
import re

from cpp_source import CppSource, Type, Variable
from source_tree import SourceTree, line_of

LINE_LENGTH_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600
PUBLIC_HEADER_LINES_MAX = 150
PARAMETERS_MAX = 5
VIRTUALS_MAX = 10
MEMBERS_MAX = 15
BOOLS_MAX = 4
ACCESSOR_PARAMETERS_MAX = 2

PASCAL = re.compile(r"[A-Z][A-Za-z0-9]*")
SNAKE = re.compile(r"[a-z][a-z0-9_]*[a-z0-9]|[a-z]")
MEMBER = re.compile(r"[a-z][a-z0-9_]*_")
CONSTANT = re.compile(r"k[A-Z][A-Za-z0-9]*")
MACRO = re.compile(r"[A-Z][A-Z0-9_]+")
# Names that the language, the standard library or a third party prescribes.
PRESCRIBED = {"main", "swap", "begin", "end", "data", "size", "hash_value", "to_json", "from_json",
              "__asan_default_options", "__tsan_default_options", "__ubsan_default_options"}
PRESCRIBED_TYPES = re.compile(r"is_\w+|value_type|iterator|const_iterator|difference_type|"
                              r"iterator_category|iterator_concept|pointer|reference")


TEST_FILE = re.compile(r"tests/.*|.*(_test\.(cc|cu)|/test_\w+\.(h|cuh|cc|cu)|_world\.h|"
                       r"_contract(_\w+)?\.(h|cc))")


def is_test(path: str) -> bool:
    """Tests, their helpers and contract suites."""
    return TEST_FILE.fullmatch(path) is not None


# (rule, pattern in the code, message, paths where it does not apply)
BANNED = [
    ("throw", r"\bthrow\b", "errors are absl::Status, not exceptions", r"(?!)"),
    ("new", r"(?<!operator )\bnew\b(?! *\()", "own by unique_ptr, values or containers", r"(?!)"),
    ("delete", r"(?<!operator )\bdelete\b", "own by unique_ptr, values or containers", r"(?!)"),
    ("cast", r"\breinterpret_cast\b", "casts belong into base/bytes.h, codecs and kernels",
     r".*codec\w*\.(h|cc)|src/(gpu|l1_gpu|network/gpu|train_gpu)/.*|bench/l1/.*\.cu"),
    ("mutex", r"\bstd::(\w*mutex|lock_guard|unique_lock|scoped_lock|shared_lock|"
     r"condition_variable\w*)\b|\babsl::(Mutex|MutexLock|CondVar)\b",
     "use Mutex, MutexLock and CondVar of base/mutex.h", r"(?!)"),
    ("thread", r"\bstd::j?thread\b(?!::)|\bstd::async\b|\bpthread_create\b",
     "threads belong to base/executor.h", TEST_FILE.pattern + "|bench/.*"),
    ("detach", r"\.detach\(|->detach\(", "no detached thread: somebody owns and joins it", r"(?!)"),
    ("sleep", r"\bsleep_(for|until)\b|\b(u|nano)?sleep\(",
     "wait on a condition with a deadline, do not sleep", r"(?!)"),
    ("shared_ptr", r"\bstd::(shared_ptr|make_shared)\b", "no shared ownership on the read path",
     r"(?!src/query/).*|" + TEST_FILE.pattern),
    ("assert", r"\bassert\(", "use HPS_CHECK or HPS_DCHECK", r"(?!)"),
    ("abort", r"(?<![.>\w])(abort|_?[eE]xit|quick_exit|terminate)\(",
     "run-time conditions are a Status; bugs are HPS_CHECK",
     TEST_FILE.pattern + "|cli/.*|examples/.*"),
    ("output", r"\bf?printf\(|\bf?puts\(|\bstd::(cout|cerr|clog)\b",
     "print only in commands, benchmarks and tests; log through base/logging.h",
     TEST_FILE.pattern + "|cli/.*|bench/.*|examples/.*"),
    ("using", r"\busing\s+namespace\b", "name what is used", r"(?!)"),
    ("goto", r"\bgoto\b", "no goto", r"(?!)"),
    ("volatile", r"\bvolatile\b(?! *\()", "use std::atomic", r"(?!)"),
    ("random", r"\bs?rand\(", "use a seeded generator of <random>", r"(?!)"),
]
BANNED = [(rule, re.compile(pattern), message, re.compile(exempt))
          for rule, pattern, message, exempt in BANNED]
# `delete` of a function; `new` whose result is owned at once.
DELETED = re.compile(r"=\s*delete\b")
OWNED_NEW = re.compile(r"((unique_ptr|shared_ptr)\b[^;]*|reset\(|\b\w+_[({]|"
                       r"static\b[^;{}()]*=)\s*new\b")  # a static is never destroyed: no order


def rule_text(path: str, text: str):
    lines = text.split("\n")
    if not text.endswith("\n") or text.endswith("\n\n"):
        yield len(lines), "end-of-file", "a file ends with exactly one newline"
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield number, "trailing-space", "trailing space"
        if "\t" in line and not path.endswith("Makefile"):
            yield number, "tab", "tab character"
        if len(line) > LINE_LENGTH_MAX and not path.endswith("CMakeLists.txt"):
            yield number, "line-length", f"{len(line)} columns, the limit is {LINE_LENGTH_MAX}"
        if re.search(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b", line):
            yield number, "to" "do", "finish it, or file an issue"
    limit = FILE_LINES_MAX
    if path.startswith("include/"):
        limit = PUBLIC_HEADER_LINES_MAX
    if len(lines) - 1 > limit:
        yield 1, "file-length", f"{len(lines) - 1} lines, the limit is {limit}"


def rule_header(source: CppSource):
    if not source.path.endswith((".h", ".cuh")):
        return
    if len(re.findall(r"^#pragma once$", source.text, re.MULTILINE)) != 1:
        yield 1, "pragma-once", "a header has one `#pragma once`"
    if not re.match(r"// \S.{10,}", source.text):
        yield 1, "header-comment", "a header opens with its contract, in a comment"


def rule_functions(source: CppSource):
    for function in source.functions:
        lines = function.last_line - function.first_line + 1
        if lines > FUNCTION_LINES_MAX:
            yield (function.first_line, "function-length",
                   f"{function.name} has {lines} lines, the limit is {FUNCTION_LINES_MAX}")
        prescribed = MACRO.fullmatch(function.name) or re.search(r"\boverride\b", function.head)
        if len(function.parameters) > PARAMETERS_MAX and not prescribed:
            yield (function.first_line, "parameters",
                   f"{function.name} has {len(function.parameters)} parameters, "
                   f"the limit is {PARAMETERS_MAX}")


def rule_virtuals(source: CppSource):
    for found in source.classes:
        body = source.code[found.begin:found.end]
        virtuals = re.findall(r"\bvirtual\b(?!\s*~)([^;{]*)", body)
        pure = [text for text in virtuals if re.search(r"=\s*0\s*$", text)]
        if len(virtuals) > VIRTUALS_MAX:
            yield (found.line, "virtuals", f"{found.name} has {len(virtuals)} virtual functions, "
                   f"the limit is {VIRTUALS_MAX}")
        if len(pure) != len(virtuals):
            yield found.line, "virtuals", f"{found.name}: virtual functions are pure"


def members_of(source: CppSource, found: Type) -> list[Variable]:
    """The data members of a class itself: not of classes in it, nor static ones."""
    inner = [other for other in source.classes
             if found.begin < other.begin and other.end < found.end]
    return [variable for variable in source.variables
            if found.begin < variable.position < found.end and variable.scope != "namespace"
            and not re.search(r"\b(static|constexpr)\b", variable.head)
            and not any(other.begin < variable.position < other.end for other in inner)]


def state_of(source: CppSource, found: Type) -> tuple[int, int]:
    """How many data members a class has, and how many of them are bools."""
    members = members_of(source, found)
    return len(members), sum(variable.is_bool for variable in members)


def is_over(state: tuple[int, int]) -> bool:
    return state[0] > MEMBERS_MAX or state[1] > BOOLS_MAX


def name_of_function_is_right(function) -> bool:
    name = function.name.split("::")[-1].lstrip("~")
    if "operator" in function.name or name in PRESCRIBED or MACRO.fullmatch(name) or \
            re.search(r"\boverride\b", function.head):
        return True
    if PASCAL.fullmatch(name):
        return True
    return function.is_member and SNAKE.fullmatch(name) is not None and (
        len(function.parameters) <= ACCESSOR_PARAMETERS_MAX)


def rule_names(source: CppSource):
    for found in source.types:
        name = found.name.split("::")[-1]
        if name and not (PASCAL.fullmatch(name)
                         or PRESCRIBED_TYPES.fullmatch(name)):
            yield found.line, "names", f"type {found.name}: PascalCase"
        for enumerator in found.enumerators:
            if not CONSTANT.fullmatch(enumerator):
                yield found.line, "names", f"enumerator {enumerator}: kPascalCase"
    for function in source.functions:
        if not name_of_function_is_right(function):
            yield (function.first_line, "names", f"function {function.name}: PascalCase "
                   f"(snake_case for members with up to {ACCESSOR_PARAMETERS_MAX} parameters)")
    for variable in source.variables:
        wanted, pattern = "snake_case", SNAKE
        if re.search(r"\bconstexpr\b", variable.head) or (
                variable.scope == "namespace" and re.match(r"(inline |static )*const\b",
                                                           variable.head)):
            wanted, pattern = "kPascalCase", CONSTANT
        elif variable.scope == "class":
            wanted, pattern = "snake_case_ (a member ends in _)", MEMBER
        if not pattern.fullmatch(variable.name):
            yield variable.line, "names", f"variable {variable.name}: {wanted}"


def rule_unused(source: CppSource):
    """Compilers say nothing of a constant, or of a constexpr function, of a source file."""
    if not source.path.endswith((".cc", ".cu")):
        return
    named = [(variable.line, variable.name, variable.head) for variable in source.variables
             if variable.scope == "namespace"]
    named += [(function.first_line, function.name, function.head)
              for function in source.functions if not function.is_member]
    for line, name, head in named:
        if re.search(r"\bconstexpr\b", head) and \
                len(re.findall(rf"\b{re.escape(name)}\b", source.code)) == 1:
            yield line, "unused", f"{name} is used nowhere in its file"


def rule_preprocessor(source: CppSource):
    for line, position, directive in source.directives:
        if found := re.match(r"#\s*define\s+(\w+)", directive):
            yield line, "macro", f"macro {found[1]}: macros belong into base/macros.h"
            if not found[1].startswith("HPS_"):
                yield line, "names", f"macro {found[1]}: HPS_ first"
        if re.match(r"#\s*(if|ifdef|ifndef)\b", directive):
            yield line, "preprocessor", f"conditional compilation: {directive.splitlines()[0]}"
            if any(found.begin < position < found.end for found in source.classes):
                yield line, "preprocessor-in-class", "no conditional compilation inside a class"


def rule_banned(source: CppSource):
    for rule, pattern, message, exempt in BANNED:
        if exempt.fullmatch(source.path):
            continue
        for match in pattern.finditer(source.code):
            before = source.code[max(match.start() - 200, 0):match.end()]
            if rule == "delete" and DELETED.search(before[-20:]):
                continue
            if rule == "new" and OWNED_NEW.search(before[max(before.rfind(";"), 0):]):
                continue
            yield line_of(source.code, match.start()), rule, f"`{match[0]}`: {message}"


CODE_IN_COMMENT = re.compile(
    r"//\s?(#include\b|(if|for|while|switch)\s*\(.*[{;]$|[\w:.>-]+\(.*\);$|"
    r"([\w:<>*&]+\s+){0,2}[\w.\[\]>-]+\s*[-+*/|&]?=\s*[^=].*;$|"
    r"return\b[^.,]*;$|}\s*(else\b.*)?$)")


def rule_comments(source: CppSource):
    for line, comment in source.comments:
        if CODE_IN_COMMENT.match(comment):
            yield line, "commented-out-code", "code in a comment: delete it (examples are indented)"


def is_own_header(path: str, include) -> bool:
    """x.cc opens with a header named x.h (from include/hps or its folder); a test with any."""
    stem = re.sub(r"(_test|_bench)?\.(cc|cu)$", "", path.split("/")[-1])
    return include.quoted and (path.endswith(("_test.cc", "_test.cu")) or
                               include.path.split("/")[-1] == stem + ".h")


def rule_includes(tree: SourceTree, path: str):
    includes = tree.includes(path)
    opens_with_own = bool(includes) and is_own_header(path, includes[0])
    rest = includes[1:] if opens_with_own else includes
    for include, previous in zip(rest[1:], rest):
        if previous.quoted and not include.quoted:
            yield (include.line, "include-order", f"{include.path}: own header first, then <...>, "
                   "then third party and project in quotes")
    own = re.sub(r"^src/", "", re.sub(r"(_test)?\.(cc|cu)$", ".h", path))
    if path.endswith((".cc", ".cu")) and tree.resolve(own) and not opens_with_own:
        yield 1, "include-order", f'includes its own header "{own}" first'
    if len({include.path for include in includes}) != len(includes):
        yield 1, "include-order", "a header is included twice"


def rule_python(path: str, text: str):
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        yield error.lineno or 1, "python", f"does not parse: {error.msg}"
        return
    if not ast.get_docstring(module):
        yield 1, "header-comment", "a Python file opens with a docstring"
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield (node.lineno, "function-length",
                       f"{node.name} has {lines} lines, the limit is {FUNCTION_LINES_MAX}")


CPP_RULES = [rule_header, rule_functions, rule_virtuals, rule_names, rule_unused,
             rule_preprocessor, rule_banned, rule_comments]
