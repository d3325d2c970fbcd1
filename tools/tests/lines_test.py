"""The count of the product's lines."""

import unittest

from planted import PlantedTest

import lines
from source_tree import SourceTree


class LinesTest(PlantedTest):
    def test_blanks_and_comments_do_not_count(self):
        text = '''// A comment.

/* Another
   one. */ int a;
int b;  // behind code
const char* c = "// no comment";
const char* d = R"(
// no comment

)";
char e = '"';  /* of two
lines */
'''
        self.assertEqual(lines.code_lines(text), 7)

    def test_product_and_tests_by_folder(self):
        tree = SourceTree(self.plant({
            "src/base/a.h": "int a;\n", "src/base/a_test.cc": "int a;\nint b;\n",
            "src/base/test_files.h": "int a;\n", "src/server/http/a.cc": "int a;\n",
            "src/l1_gpu/a.cu": "int a;\n", "src/train_cpu/a.cc": "int a;\n",
            "src/testing/a.h": "int a;\n", "bench/a.cc": "int a;\n", "cli/a.cc": "int a;\n",
            "include/hps/a.h": "int a;\n", "cli/a.py": "a\n"}))
        product, tests = lines.count(tree)
        self.assertEqual(product, {"src/base": 1, "src/server": 1, "src/l1_gpu": 1, "cli": 1,
                                   "include": 1})
        self.assertEqual(tests, {"src/base": 3})


if __name__ == "__main__":
    unittest.main()
