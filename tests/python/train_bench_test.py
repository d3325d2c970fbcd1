"""`python -m hps.bench train --device cuda`: its bounds and targets, and how parts are chosen. What
runs on a GPU is not run here."""

import pathlib
import re
import subprocess
import sys
import unittest

import torch

from hps.bench import _train, _train_cases, _train_device, _train_peers, _train_scenarios
from hps.bench._train_cases import (ADAM, BAGS_OF_10, CASES, FEWEST, FEWEST_OF_KEYS, LARGE,
                                    OUTPUTS_16, ROWS_16, ROWWISE, SMALL_BAGS, Case, Shape)

COPY_RATE = 4259e9  # of one H200
TARGET = re.compile(r"([<>]=) [0-9.]+|none")


class FloorTest(unittest.TestCase):

    def microseconds(self, case: Case, shape: Shape, unique: int, bound: str = FEWEST) -> float:
        return case.floor_bytes(shape, unique)[bound] / COPY_RATE * 1e6

    def test_bounds_are_those_computed_by_hand(self) -> None:
        for case, shape, unique, least in (
                (ROWWISE, LARGE, 268_000, 515), (ADAM, LARGE, 268_000, 644),
                (OUTPUTS_16, LARGE, 268_000, 310), (ROWS_16, LARGE, 268_000, 262),
                (ROWWISE, BAGS_OF_10, 1_450_000, 1003), (OUTPUTS_16, BAGS_OF_10, 1_450_000, 798),
                (ROWS_16, BAGS_OF_10, 1_450_000, 537)):
            with self.subTest(f"{case.name}, {shape}"):
                self.assertAlmostEqual(self.microseconds(case, shape, unique) / least, 1, delta=.01)

    def test_a_gradient_row_for_each_key(self) -> None:
        for shape, unique, least in ((BAGS_OF_10, 1_450_000, 2846), (SMALL_BAGS, 316_000, 406)):
            moved = self.microseconds(ROWWISE, shape, unique, FEWEST_OF_KEYS)
            self.assertAlmostEqual(moved / least, 1, delta=.01)
        wide, narrow = (case.floor_bytes(BAGS_OF_10, 7) for case in (ROWWISE, OUTPUTS_16))
        self.assertEqual(wide[FEWEST_OF_KEYS] - wide[FEWEST],
                         2 * (narrow[FEWEST_OF_KEYS] - narrow[FEWEST]))
        self.assertEqual(list(ROWWISE.floor_bytes(LARGE, 7)), [FEWEST])  # it would be the same


class TargetsTest(unittest.TestCase):

    def test_each_belongs_to_a_bound_that_is_measured(self) -> None:
        for (case, shape), ratios in _train_cases.TARGETS.items():
            self.assertIn(shape, case.shapes)
            bounds = {"FBGEMM", *(["torch"] if case.make_torch else []),
                      *case.floor_bytes(shape, 1)}
            self.assertLessEqual(set(ratios), bounds, f"{case.name}, {shape}")

    def test_a_result_has_its_own(self) -> None:
        found = _train_device.result(ROWWISE, LARGE, [2e-3, 1e-3, 3e-3], ("FBGEMM", [3e-3]))
        self.assertEqual(found["target"], ">= 1.6")
        self.assertAlmostEqual(found["ratio"], 1.5)
        self.assertAlmostEqual(found["figure"], LARGE.keys / 2e-3)
        self.assertAlmostEqual(found["bound"], LARGE.keys / 3e-3)
        self.assertEqual(found["params"]["outputs"], "float32")
        self.assertEqual(_train_cases.target_of(ADAM, SMALL_BAGS, "FBGEMM"), "none")

    def test_all_are_written_so_that_reports_can_judge_them(self) -> None:
        targets = [*_train_scenarios.TARGETS.values(),
                   *(_train_cases.target_of(case, shape, bound) for case in CASES
                     for shape in case.shapes for bound in ("FBGEMM", "torch", FEWEST))]
        for target in targets:
            self.assertRegex(target, TARGET)
        self.assertEqual(list(_train_scenarios.TARGETS), list(_train_scenarios.SCENARIOS))


class ChosenTest(unittest.TestCase):

    def test_a_whole_name_comes_before_parts_of_names(self) -> None:
        chosen = _train_cases.chosen
        names = _train_device.NAMES
        self.assertEqual(chosen(names, None), names)
        self.assertEqual(chosen(names, ["row-wise adagrad"]), [ROWWISE.name])
        self.assertEqual(chosen(names, ["growth", "bfloat16"]),
                         [ROWS_16.name, OUTPUTS_16.name, "growth"])
        with self.assertRaisesRegex(ValueError, "'rowwise' is none of 'row-wise AdaGrad', 'SGD'"):
            chosen(names, ["SGD", "rowwise"])

    def test_the_command_names_them(self) -> None:
        command = [sys.executable, "-m", "hps.bench", "train"]
        shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
        for name in _train.names("cpu") + _train.names("cuda"):
            self.assertIn(f"\n    {name}\n", shown.stdout)
        refused = subprocess.run([*command, "--only", "growth"], capture_output=True, text=True,
                                 check=False, cwd=pathlib.Path(__file__).parent)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--only: 'growth' is none of", refused.stderr)


class LineTest(unittest.TestCase):

    def test_what_is_printed(self) -> None:
        line = _train.line_of({"name": "n", "unit": "keys/s", "figure": 3e6, "bound": 2e6,
                               "ratio": 1.5, "target": ">= 1"})
        self.assertRegex(line, r"n +3\.00 M keys/s, bound +2\.00, ratio 1\.50 \(target >= 1\)")
        line = _train.line_of({"name": "n", "unit": "ms", "figure": 3, "target": "<= 10"})
        self.assertRegex(line, r"n +3\.00 ms \(target <= 10\)")
        self.assertRegex(_train.line_of({"name": "n", "skipped": "why"}), "n +not measured: why")


class KeysTest(unittest.TestCase):

    def test_new_keys_are_new(self) -> None:
        data = _train_peers.Data(torch.device("cpu"), [1000, 3, 70])
        every = torch.cat([torch.arange(size) + base for size, base in zip(data.sizes, data.bases)])
        known = set(_train_peers.hashed(every).tolist())
        self.assertEqual(len(known), 1073)
        drawn = data.keys(data.draw(Shape(50, 4, 1.05), 0))
        self.assertEqual(drawn.shape, (3, 200))
        self.assertLessEqual(set(drawn.view(-1).tolist()), known)
        new = [_train_scenarios.new_keys(begin, 100, data.device) for begin in (0, 100)]
        self.assertEqual(len(known | set(torch.cat(new).tolist())), 1273)

    def test_gradients_have_the_type_of_the_outputs(self) -> None:
        values = torch.zeros(2, requires_grad=True)
        with self.assertRaisesRegex(TypeError, "outputs are torch.float32, their gradients"):
            _train_peers.backward(values * 2, torch.ones(2, dtype=torch.bfloat16))


if __name__ == "__main__":
    unittest.main()
