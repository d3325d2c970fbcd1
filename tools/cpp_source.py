"""A C++ file as the style check sees it: code without comments and strings, and its scopes.

No parser: it relies on the file being formatted by clang-format and on the house style itself
(a body's brace follows a space, an initializer's brace does not).
"""

import dataclasses
import functools
import re

from source_tree import line_of

# Raw strings, strings, characters (not the ' of 20'000), comments.
LEXEME = re.compile(
    r'R"(?P<raw>[^()\s]{0,16})\((?:.|\n)*?\)(?P=raw)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\[^'\n]+|\\'|[^'\\\n])'"
    r"|//[^\n]*|/\*(?:.|\n)*?\*/")
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)
LABEL = re.compile(r"\s*(public|private|protected)\s*:(?!:)")
TEMPLATE_ARGUMENTS = re.compile(r"(?<!operator)<[^<>;{}]*>")
ATTRIBUTE = re.compile(r"__attribute__\(\([^()]*(?:\([^()]*\))?\)\)|\[\[[^\]]*\]\]|"
                       r"\bHPS_[A-Z_]+\([^()]*\)|\b(?:alignas|explicit)\([^()]*\)|"
                       r"\b__(?:launch_bounds|align|cluster_dims)__\([^()]*\)")
CALLABLE = re.compile(r"((?:\w+\s*::\s*)*(?:operator\s*(?:\(\)|\[\]|[^\s\w(]+|[\w ]+)|~?\w+))\s*\(")
POINTER_TO_FUNCTION = re.compile(r"\(\s*\*\s*(\w+)\s*\)\s*\(.*\)$", re.DOTALL)
BOOL = re.compile(r"(?:(?:mutable|const)\s+)*(?:bool\s+\w|std::atomic<bool>)")
NOT_A_NAME = {"decltype", "requires", "noexcept", "alignas", "sizeof", "static_assert"}


@dataclasses.dataclass
class Function:
    name: str  # as written: may be qualified
    parameters: list[str]
    first_line: int
    last_line: int
    is_member: bool
    is_definition: bool
    head: str


@dataclasses.dataclass
class Variable:
    name: str
    line: int
    head: str
    scope: str  # "namespace", "class", "struct"; "struct" also for a class's public members
    position: int  # in the text
    is_bool: bool  # or an atomic one


@dataclasses.dataclass
class Type:
    kind: str  # class, struct, union, enum, alias, concept
    name: str
    line: int
    begin: int
    end: int  # of its body, as positions in the text
    enumerators: list[str] = dataclasses.field(default_factory=list)


def blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def strip_template_arguments(text: str) -> str:
    previous = None
    while previous != text:
        previous, text = text, TEMPLATE_ARGUMENTS.sub(blank, text)
    return text


def split_parameters(text: str) -> list[str]:
    """Splits at commas outside of brackets; `text` has no template arguments left."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    parts = [part.strip() for part in parts if part.strip()]
    return [] if parts == ["void"] else parts


def matching(code: str, begin: int, pair: str) -> int:
    """The position of the bracket that closes the one at `begin`; the end if there is none."""
    depth = 0
    for match in re.compile(f"[{re.escape(pair)}]").finditer(code, begin):
        depth += 1 if match[0] == pair[0] else -1
        if depth == 0:
            return match.start()
    return len(code)


class CppSource:
    def __init__(self, path: str, text: str):
        self.path = path
        self.text = text
        self.comments: list[tuple[int, str]] = []
        without_comments = LEXEME.sub(self._lexeme, text)
        self.directives = [(line_of(text, match.start()), match.start(), match[0].strip())
                           for match in DIRECTIVE.finditer(without_comments)]
        self.code = DIRECTIVE.sub(blank, without_comments)
        self.functions: list[Function] = []
        self.variables: list[Variable] = []
        self.types: list[Type] = []
        self._scan()

    def _lexeme(self, match: re.Match) -> str:
        if match[0].startswith(("//", "/*")):
            self.comments.append((line_of(self.text, match.start()), match[0]))
        elif match[0].startswith('"'):
            return '"' + " " * (len(match[0]) - 2) + '"'
        return blank(match)

    @functools.cached_property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @functools.cached_property
    def classes(self) -> list[Type]:
        return [found for found in self.types if found.kind in ("class", "struct", "union")]

    def _scan(self) -> None:
        scopes = ["namespace"]
        head, position = 0, 0
        token = re.compile(r"[{}();]")
        while match := token.search(self.code, position):
            position = match.end()
            if match[0] == "(":
                position = matching(self.code, match.start(), "()") + 1
            elif match[0] == ";":
                self._statement(head, match.start(), self._scope(head, scopes))
                head = position
            elif match[0] == "}":
                if len(scopes) > 1:
                    scopes.pop()
                head = position
            elif match[0] == "{":
                kind = self._open(head, match.start(), self._scope(head, scopes))
                if kind in ("namespace", "class", "struct", "union"):
                    scopes.append(kind)
                    head = position
                else:
                    position = matching(self.code, match.start(), "{}") + 1
                    if kind in ("function", "enum"):
                        head = position

    def _scope(self, begin: int, scopes: list[str]) -> str:
        """The scope of a declaration; a label before it changes that of those that follow."""
        while label := LABEL.match(self.code, begin):
            scopes[-1] = "struct" if label[1] == "public" else "class"
            begin = label.end()
        return scopes[-1]

    def _head(self, begin: int, end: int) -> tuple[str, int]:
        """The declaration's text without labels and attributes, and its first line."""
        text = self.code[begin:end]
        while label := LABEL.match(text):
            begin += label.end()
            text = text[label.end():]
        first = begin + len(text) - len(text.lstrip())
        return ATTRIBUTE.sub(blank, text).strip(), line_of(self.code, first)

    def _open(self, begin: int, brace: int, scope: str) -> str:
        raw = self.code[begin:brace]
        head, line = self._head(begin, brace)
        plain = re.sub(r"^template\s+", "", strip_template_arguments(head)).strip()
        plain = re.sub(r"^requires\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*", "", plain)
        if re.match(r"(inline\s+)?namespace\b", plain) or plain == 'extern "C"' or (
                plain.startswith("extern") and "(" not in plain):
            return "namespace"
        if found := re.match(r"enum(?:\s+class|\s+struct)?\s+(\w+)", plain):
            body = self.code[brace + 1:matching(self.code, brace, "{}")]
            names = [part.split("=")[0].strip() for part in split_parameters(body)]
            self.types.append(Type("enum", found[1], line, brace, brace, names))
            return "enum"
        if found := re.match(r"(class|struct|union)\b([\w\s:]*?)(?:final\s*)?(?:(?<!:):(?!:)|$)",
                             plain):
            names = found[2].split()
            self.types.append(Type(found[1], names[-1] if names else "", line, brace,
                                   matching(self.code, brace, "{}")))
            return found[1]
        if "(" not in plain or not raw[-1:].isspace() or re.search(r"(=|\breturn)\s*$", raw) \
                or re.search(r"\bconcept\b", plain):
            return "initializer"
        self._function(head, line, line_of(self.code, matching(self.code, brace, "{}")),
                       scope, True)
        return "function"

    def _function(self, head: str, line: int, last_line: int, scope: str, defined: bool) -> None:
        plain = strip_template_arguments(head)
        for match in CALLABLE.finditer(plain):
            name = match[1].replace(" ", "")
            if name in NOT_A_NAME:
                continue
            opening = match.end() - 1
            parameters = split_parameters(plain[opening + 1:matching(plain, opening, "()")])
            is_member = scope != "namespace" or "::" in name
            self.functions.append(
                Function(name, parameters, line, last_line, is_member, defined, plain))
            return

    def _statement(self, begin: int, end: int, scope: str) -> None:
        head, line = self._head(begin, end)
        plain = strip_template_arguments(head)
        if found := re.match(r"(?:template\s+)?(?:using|concept)\s+(\w+)\s*=", plain) or \
                re.match(r"(?:template\s+)?concept\s+(\w+)", plain):
            self.types.append(Type("alias", found[1], line, begin, begin))
            return
        if not plain or re.match(
                r"(using|typedef|friend|class|struct|union|enum|template|static_assert|extern|"
                r"return|namespace|goto|__extension__ using)\b|[A-Z]+_[A-Z_]+\(", plain):
            if not re.match(r"(template|friend)\b.*\(", plain, re.DOTALL):
                return
        declared = re.split(r"(?<![=!<>])=(?!=)|\{", plain, maxsplit=1)[0].strip()
        declared = POINTER_TO_FUNCTION.sub(r"* \1", declared)
        if "operator" in plain or "(" in declared:
            if not plain.startswith("friend"):
                self._function(head, line, line_of(self.code, end), scope, False)
            return
        if self.code[:begin].endswith("}"):
            declared = f"- {declared}"  # of the type that ends there
        if found := re.match(r".*[\s*&](\w+)\s*(?:\[[^\]]*\]\s*)*(?::\s*\w+)?$", declared,
                             re.DOTALL):
            is_bool = BOOL.match(head) is not None
            self.variables.append(Variable(found[1], line, plain, scope, begin, is_bool))
