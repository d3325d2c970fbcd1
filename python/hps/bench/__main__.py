"""Measures, and prints each figure with its bound, ratio and target.

    python -m hps.bench train [--device cuda] [--only NAME ...] [--out F.json] [--json]

The JSON is that of `hps bench`.
"""

import argparse
import json
import pathlib
import sys

from hps.bench import _train


def make_parser() -> argparse.ArgumentParser:
    names = ["\n    ".join([f"  --device {device}", *_train.names(device)])
             for device in _train.DEVICES]
    parser = argparse.ArgumentParser(
        prog="python -m hps.bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="names of parts:\n" + "\n".join(names))
    parser.add_argument("scenario", choices=["train"])
    parser.add_argument("--device", choices=_train.DEVICES, default="cpu")
    parser.add_argument("--only", metavar="NAME", action="append",
                        help="measure this part alone: that of this name, or else all whose names "
                        "contain NAME; may be given several times")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=pathlib.Path, help="write the JSON to a file, too")
    return parser


def main() -> int:
    parser = make_parser()
    arguments = parser.parse_args()
    try:
        only = _train.chosen(_train.names(arguments.device), arguments.only)
    except ValueError as error:
        parser.error(f"--only: {error}")
    report = _train.run(arguments.json, arguments.device, only)
    text = json.dumps(report, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    if arguments.json:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
