"""Say how many tests ran and failed, and how many were skipped and why, from pytest's JUnit reports."""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main(reports: list[str]) -> None:
    """Print one line per report and one per reason for skipping."""
    reasons: Counter[str] = Counter()
    for path in map(Path, reports):
        if not path.exists():
            print(f"{path.stem}: no report was written")
            continue
        cases = list(ElementTree.parse(path).iter("testcase"))
        marks = [mark for case in cases for mark in case.iter("skipped")]
        skipped = [mark for mark in marks if mark.get("type") != "pytest.xfail"]
        failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
        print(f"{path.stem}: {len(cases)} tests, {failed} failed, {len(skipped)} skipped")
        reasons.update(mark.get("message", "no reason given") for mark in skipped)
    print(f"Skipped in all: {reasons.total()}")
    for reason, count in reasons.most_common():
        print(f"  {count} x {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
