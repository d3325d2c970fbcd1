"""`python -m hps.bench SCENARIO [--json] [--out F.json]`; the JSON is that of `hps bench`."""

import argparse
import json
import pathlib
import sys

from hps.bench import _train


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hps.bench", description=__doc__)
    parser.add_argument("scenario", choices=["train"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=pathlib.Path, help="write the JSON to a file, too")
    arguments = parser.parse_args()
    report = _train.run(arguments.json, arguments.device)
    text = json.dumps(report, indent=1)
    if arguments.out:
        arguments.out.write_text(text + "\n")
    if arguments.json:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
