"""Plants one violation of each rule of tidy.py: a check that cannot fail checks nothing."""

import unittest

from planted import PlantedTest

import tidy

HEADER = "// A header that says what it is for.\n#pragma once\n"


def long_function(lines: int) -> str:
    return "void Long() {\n" + "  Step();\n" * (lines - 2) + "}\n"


class TidyTest(PlantedTest):
    def rules(self, path: str, text: str, more: dict[str, str] | None = None) -> list[str]:
        """The rules that the file breaks (lists of sources and tests apart)."""
        root = self.plant({path: text} | (more or {}))
        findings, _ = tidy.check(root, allowed={}, untested={}, state={})
        return [finding.rule for finding in findings
                if finding.path == path and finding.rule not in ("source-list", "untested")]

    def assert_breaks(self, rule: str, text: str, path: str = "src/tier/a.cc") -> None:
        with self.subTest(text=text[:80], path=path):
            self.assertEqual(set(self.rules(path, text)), {rule})

    def assert_clean(self, text: str, path: str = "src/tier/a.cc") -> None:
        with self.subTest(text=text[:80], path=path):
            self.assertEqual(self.rules(path, text), [])

    def test_text(self):
        self.assert_breaks("trailing-space", "int F(); \n".replace("F()", "Func()"))
        self.assert_breaks("tab", "void F() {\n\tG();\n}\n")
        self.assert_breaks("line-length", "// " + "x" * 98 + "\n")
        self.assert_clean("// " + "x" * 97 + "\n")
        self.assert_breaks("end-of-file", "void F();")
        self.assert_breaks("end-of-file", "void F();\n\n")
        self.assert_breaks("to" "do", "// TO" "DO: later.\n")
        self.assert_breaks("to" "do", "# FIX" "ME\n", "tools/a.sh")

    def test_file_lengths(self):
        self.assert_breaks("file-length", "// A line.\n" * 601)
        self.assert_clean("// A line.\n" * 600)
        self.assert_breaks("file-length", HEADER + "// A line.\n" * 149, "include/hps/a.h")
        self.assert_clean(HEADER + "// A line.\n" * 148, "include/hps/a.h")

    def test_two_types_of_one_name(self):
        other = {"src/base/b.h": HEADER + "namespace hps {\nstruct Twice {};\n}\n"}
        text = "namespace hps {\nclass Twice {\n  int one_ = 0;\n};\n}\n"
        self.assertEqual(set(self.rules("src/tier/a.cc", text, other)), {"type-name"})
        for clean in (text.replace("Twice", "Once"),
                      text.replace("namespace hps", "namespace hps::tier"),
                      "namespace hps {\nnamespace {\n" + text[16:] + "}\n",
                      "namespace hps {\nclass Outer {\n  struct Twice {};\n};\n}\n",
                      "namespace hps {\nclass Outer::Twice {};\nclass Twice;\n}\n"):
            self.assertEqual(self.rules("src/tier/a.cc", clean, other), [], clean)

    def test_headers(self):
        self.assert_breaks("pragma-once", "// A header that says what it is for.\n", "src/tier/a.h")
        self.assert_breaks("header-comment", "#pragma once\n// Late words.\n", "src/tier/a.h")
        self.assert_clean(HEADER, "src/tier/a.h")

    def test_function_length(self):
        self.assert_breaks("function-length", long_function(71))
        self.assert_clean(long_function(70))
        self.assert_breaks("function-length",
                           "class A {\n  int Get() const {\n" + "    Step();\n" * 70 + "  }\n};\n")
        self.assert_breaks("function-length",
                           "A::A(int a) : a_{a}, b_(2) {\n" + "  Step();\n" * 70 + "}\n")
        self.assert_breaks("function-length", "TEST(A, B) {\n" + "  Step();\n" * 70 + "}\n")
        self.assert_breaks("function-length", '"""Words."""\n\n\ndef f():\n' + "    g()\n" * 70,
                           "tools/a.py")

    def test_kernels_are_functions(self):
        head = ("template <int kLanes>\n__global__ void __launch_bounds__(256, 2) Copy(Args args)"
                " {\n")
        self.assert_clean(head + "  Step();\n" * 67 + "}\n", "src/l1_gpu/a.cu")
        self.assert_breaks("function-length", head + "  Step();\n" * 68 + "}\n",
                           "src/l1_gpu/a.cu")
        self.assert_breaks("names", head.replace("Copy", "copy") + "}\n", "src/l1_gpu/a.cu")

    def test_braces_in_strings_and_comments_do_not_count(self):
        self.assert_clean("void F() {\n  G(\"{\", '{', R\"({)\");  // {\n}\n" + long_function(70))
        self.assert_breaks("function-length",
                           "void F() {\n  G(\"}\", '}', 20'000);  // a }\n}\n" + long_function(71))

    def test_parameters(self):
        self.assert_breaks("parameters", "void F(int a, int b, int c, int d, int e, int f);\n")
        self.assert_clean("void F(int a, std::map<int, int> b, int c, int d, int e);\n")
        self.assert_breaks("parameters", "class A {\n  A(int a, int b, int c, int d, int e,\n"
                           "    int f);\n};\n")

    def test_virtuals(self):
        eleven = "".join(f"  virtual void F{i}() = 0;\n" for i in range(11))
        self.assert_breaks("virtuals", "class A {\n" + eleven + "};\n")
        ten = "".join(f"  virtual void F{i}() = 0;\n" for i in range(10))
        self.assert_clean("class A {\n  virtual ~A() = default;\n" + ten + "};\n")
        self.assert_breaks("virtuals", "class A {\n  virtual void F() {}\n};\n")

    def test_state(self):
        def members(count, kind="int"):
            return "".join(f"  {kind} a{i}_ = 0;\n" for i in range(count))

        def of_class(body, more=""):
            return "class A {\n void F();\n" + body + more + "};\n"

        self.assert_breaks("state", of_class(members(16)))
        self.assert_breaks("state", of_class(members(5, "bool")))
        self.assert_breaks("state", of_class(members(5, "std::atomic<bool>")))
        self.assert_breaks("state", of_class(members(15), "  Result (*run_)(const Run& run);\n"))
        self.assert_breaks("state", of_class(members(15),
                                             "  std::map<A, B> b_ HPS_GUARDED_BY(c_);\n"))
        self.assert_breaks("state", of_class(members(15), "  struct {\n    int b;\n  } c_;\n"))
        self.assert_breaks("state", of_class(members(15), "  enum class B { kA } c_ = B::kA;\n"))
        self.assert_breaks("state", of_class("  struct {\n" + members(16).replace("_", "") +
                                             "  } b_;\n"))
        self.assert_breaks("state", of_class(members(16)), "cli/a.cc")
        self.assert_clean(of_class(members(15)))
        self.assert_clean(of_class(members(4, "bool"), "  std::vector<bool> b_;\n"))
        self.assert_clean(of_class(members(15),
                                   "  static int c_;\n  static constexpr int kC = 3;\n"))
        self.assert_clean(of_class(members(8), "  struct B {\n" +
                                   members(8).replace("_", "") + "  };\n"))
        self.assert_clean(of_class(members(16)), "src/tier/a_test.cc")
        self.assert_clean(of_class(members(16)), "bench/a.cc")

    def test_the_list_of_state_only_shrinks(self):
        text = "class A {\n" + "".join(f"  int a{i}_;\n" for i in range(17)) + "};\n"
        root = self.plant({"src/tier/a.cc": text})

        def rules(state):
            found, _ = tidy.check(root, allowed={}, untested={"src/tier/a.cc": "why"}, state=state)
            return [finding.rule for finding in found if finding.rule != "source-list"]

        name = ("src/tier/a.cc", "A")
        self.assertEqual(rules({name: (17, 0)}), [])
        self.assertEqual(rules({name: (16, 0)}), ["state"])
        self.assertEqual(rules({name: (18, 0)}), ["state"])
        self.assertEqual(rules({name: (17, 0), ("src/tier/a.cc", "B"): (16, 0)}), ["allow-list"])

    def test_names(self):
        for text in ["class row_cache {};\n", "enum class Kind { kGood, BAD };\n",
                     "void do_it();\n", "class A {\n  int count;\n};\n",
                     "struct A {\n  int count_;\n};\n", "struct A {\n  int rowCount;\n};\n",
                     "constexpr int limit = 3;\nstatic_assert(limit > 0);\n",
                     "inline constexpr int LIMIT = 3;\nstatic_assert(LIMIT > 0);\n",
                     "using row_id = int;\n",
                     "class A {\n public:\n  A();\n\n private:\n  int count = 0;\n};\n",
                     "class A {\n  void set_it(int a, int b, int c);\n};\n",
                     "class A {\n  static constexpr int max_ = 3;\n};\n"]:
            self.assert_breaks("names", text)
        for text in ["class RowCache {\n  int size() const { return a_; }\n  int a_ = 0;\n};\n",
                     "enum class Kind { kGood, kBetter = 2 };\n", "void DoIt();\n",
                     "struct A {\n  int row_count = 0;\n  std::vector<int> keys{};\n};\n",
                     "class A {\n public:\n  int count = 0;\n\n private:\n  int a_ = 0;\n};\n",
                     "class A {\n  bool end_it(int a, int b, int c) override;\n};\n",
                     "constexpr int kLimit = 3;\nstatic_assert(kLimit > 0);\n",
                     "int main() { return 0; }\n",
                     "class A {\n  std::vector<int> free_ HPS_GUARDED_BY(mutex_);\n};\n",
                     "bool operator==(const A& a, const A& b);\n",
                     "class HPS_CAPABILITY(\"mutex\") Mutex {\n  A::B a_;\n};\n"]:
            self.assert_clean(text)

    def test_unused(self):
        self.assert_breaks("unused", "namespace {\nconstexpr int kA = 1;\n}  // namespace\n")
        self.assert_breaks("unused", "namespace {\nconstexpr int Twice(int a) { return 2 * a; }\n"
                                     "}  // namespace\n")
        self.assert_clean("namespace {\nconstexpr int kA = 1;\nint B() { return kA; }\n"
                          "}  // namespace\n")
        self.assert_clean(HEADER + "inline constexpr int kA = 1;\n", "src/tier/a.h")

    def test_macros_and_conditions(self):
        self.assertEqual(self.rules("src/tier/a.cc", "#define HPS_X 1\n"), ["macro"])
        self.assertEqual(sorted(self.rules("src/tier/a.cc", "#define X 1\n")), ["macro", "names"])
        self.assert_breaks("preprocessor", "#if defined(X)\n#endif\n")
        self.assertEqual(sorted(self.rules("src/tier/a.cc",
                                           "class A {\n#ifdef X\n  int a_;\n#endif\n};\n")),
                         ["preprocessor", "preprocessor-in-class"])

    def test_banned_constructs(self):
        for rule, line in [
                ("throw", "throw 1;"), ("new", "auto* a = new A();"), ("delete", "delete a;"),
                ("cast", "auto* a = reinterpret_cast<int*>(b);"),
                ("mutex", "std::mutex mutex;"), ("mutex", "absl::Mutex mutex;"),
                ("mutex", "std::lock_guard lock(a);"), ("thread", "std::thread a(F);"),
                ("detach", "worker.detach();"),
                ("sleep", "std::this_thread::sleep_for(wait);"), ("sleep", "usleep(1);"),
                ("assert", "assert(a);"), ("abort", "std::abort();"), ("abort", "exit(1);"),
                ("output", 'printf("a");'), ("output", "std::cout << 1;"),
                ("using", "using namespace std;"), ("goto", "goto end;"),
                ("volatile", "volatile int a;"), ("random", "int a = rand();")]:
            self.assert_breaks(rule, f"void F() {{\n  {line}\n}}\n")
        self.assert_breaks("shared_ptr", "void F(std::shared_ptr<int> a);\n", "src/query/a.cc")

    def test_what_resembles_a_banned_construct(self):
        for line in ["A(const A&) = delete;"]:
            self.assert_clean(f"class A {{\n  {line}\n}};\n")
        for line in ['Log("throw new delete printf(");', "std::unique_ptr<A> a(new A());",
                     "static const auto* const a = new A();", "::new (place) A();",
                     "static_assert(true);", "std::thread::hardware_concurrency();",
                     "app.exit(error);", "std::snprintf(a, b, c);"]:
            self.assert_clean(f"void F() {{\n  {line}\n}}\n")
        self.assert_clean("void F(std::shared_ptr<int> a);\n", "src/node/a.cc")
        self.assert_clean("void F() {\n  std::thread a(G);\n}\n", "src/tier/a_test.cc")
        self.assert_clean("void F() {\n  printf(\"a\");\n}\n", "cli/a.cc")
        self.assert_clean("auto* F() { return reinterpret_cast<int*>(b); }\n",
                          "src/l3_rocksdb/row_codec.cc")

    def test_code_in_comments(self):
        for text in ["// count += 1;\n", "// Frobnicate(a, b);\n", "// return 3;\n",
                     "// #include <vector>\n", "// if (a > b) {\n", "// int a = F(b);\n", "// }\n"]:
            self.assert_breaks("commented-out-code", text)
        for text in ["// An epoch = the number of a change; readers keep it.\n",
                     "//   auto a = F(b);\n", "// Ends (in the worst case);\n",
                     "// return to the caller, who owns it;\n"]:
            self.assert_clean(text)

    def test_includes(self):
        own = {"src/tier/a.h": HEADER}
        for text in ['#include <vector>\n\n#include "tier/a.h"\n',
                     '#include "tier/a.h"\n\n#include "base/b.h"\n#include <vector>\n',
                     '#include "tier/a.h"\n\n#include <vector>\n#include <vector>\n']:
            with self.subTest(text=text):
                self.assertIn("include-order", self.rules("src/tier/a.cc", text, own))
        good = '#include "tier/a.h"\n\n#include <vector>\n\n#include "absl/a.h"\n'
        self.assertEqual(self.rules("src/tier/a.cc", good, own), [])

    def test_python_opens_with_a_docstring(self):
        self.assert_breaks("header-comment", "import sys\n", "tools/a.py")

    def test_every_source_has_a_test_or_a_reason(self):
        def findings(files, untested):
            found, _ = tidy.check(self.plant(files), allowed={}, untested=untested, state={})
            return [finding.path for finding in found if finding.rule == "untested"]

        alone = {"src/tier/a.cc": "void F();\n"}
        both = alone | {"src/tier/a_test.cc": "void F();\n"}
        self.assertEqual(findings(alone, {}), ["src/tier/a.cc"])
        self.assertEqual(findings(alone, {"src/tier/a.cc": "why"}), [])
        kernel = {"src/l1_gpu/a.cu": "void F();\n"}
        self.assertEqual(findings(kernel, {}), ["src/l1_gpu/a.cu"])
        self.assertEqual(findings(kernel | {"src/l1_gpu/a_test.cc": "void F();\n"}, {}), [])
        self.assertEqual(findings(both, {}), [])
        self.assertEqual(findings(both, {"src/tier/a.cc": "why"}), ["src/tier/a.cc"])
        includes = '#include "tier/a.h"\n'
        by_header = alone | {"src/tier/a.h": HEADER, "src/tier/all_test.cc": includes}
        self.assertEqual(findings(by_header, {}), [])
        elsewhere = alone | {"src/tier/a.h": HEADER, "src/base/b_test.cc": includes}
        self.assertEqual(findings(elsewhere, {}), ["src/tier/a.cc"])
        self.assertEqual(findings({}, {"src/tier/a.cc": "why"}), ["src/tier/a.cc"])

    def test_a_named_test_must_exist(self):
        tree = tidy.SourceTree(self.plant({"src/tier/b_test.cc": ""}))
        named = {"src/tier/b_test.cc": ["a"], "src/tier/gone_test.cc": ["c"]}
        self.assertEqual(tidy.tested_by(tree, named), {"src/tier/a.cc": "src/tier/b_test.cc",
                                                       "src/tier/a.cu": "src/tier/b_test.cc"})

    def test_source_lists_are_explicit_and_complete(self):
        def findings(cmake):
            files = {"src/tier/CMakeLists.txt": cmake, "src/tier/a.cc": "void F();\n"}
            found, _ = tidy.check(self.plant(files), allowed={}, untested={}, state={})
            return [finding.path for finding in found if finding.rule == "source-list"]

        self.assertEqual(findings("hps_library(tier SOURCES a.cc)\n"), [])
        self.assertEqual(findings("hps_library(tier SOURCES b.cc)\n"), ["src/tier/a.cc"])
        self.assertEqual(findings("# a.cc\n"), ["src/tier/a.cc"])
        self.assertIn("src/tier/CMakeLists.txt", findings("file(GLOB all *.cc)\n"))

    def test_exceptions_hold_and_stale_ones_are_found(self):
        root = self.plant({"src/tier/a.cc": "void F() {\n  throw 1;\n}\n"})
        allowed = {("throw", "src/tier/a.cc"): "why"}
        untested = {"src/tier/a.cc": "why"}

        def rules(exceptions):
            found, _ = tidy.check(root, allowed=exceptions, untested=untested, state={})
            return [finding.rule for finding in found if finding.rule != "source-list"]

        self.assertEqual(rules({}), ["throw"])
        self.assertEqual(rules(allowed), [])
        self.assertEqual(rules(allowed | {("goto", "src/tier/a.cc"): "why"}), ["allow-list"])

    def test_share_of_long_functions(self):
        root = self.plant({"src/tier/a.cc": long_function(80) + "void F() {\n" + "  G();\n" * 18
                           + "}\n"})
        self.assertIn("80.0 % of them", tidy.check(root, allowed={}, untested={}, state={})[1])


if __name__ == "__main__":
    unittest.main()
