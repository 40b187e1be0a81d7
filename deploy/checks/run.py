#!/usr/bin/env python3
"""Runs the checks of deploy/ and prints a line for each. See deploy/check, which prepares the tools."""

import argparse
import importlib
import signal
import sys
import traceback

from support import Failed, Skipped

MODULES = ("alerts", "image", "chart", "unit", "package", "by_hand", "proxies")


class Report:
    """The outcomes of all checks."""

    def __init__(self):
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}

    def __call__(self, name, check, *arguments):
        """Runs a check and prints its outcome. Returns whether it passed."""
        outcome, why = "passed", None
        try:
            check(*arguments)
        except Skipped as reason:
            outcome, why = "skipped", reason
        except Failed as problem:
            outcome, why = "failed", problem
        except Exception:
            outcome, why = "failed", traceback.format_exc()
        self.counts[outcome] += 1
        print(f"{outcome}: {name}" if why is None else f"{outcome}: {name}: {why}", flush=True)
        return outcome == "passed"


def end(number, _frame):
    """Ends by an exception, so that everything that was started is stopped, and everything mounted is unmounted."""
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    parser = argparse.ArgumentParser()
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("program")
    parser.add_argument("chosen", nargs="*")
    arguments = parser.parse_args()
    program, chosen = arguments.program, arguments.chosen
    unknown = [name for name in chosen if name not in MODULES]
    if unknown:
        raise SystemExit(f"no checks are named {', '.join(unknown)}; there are {', '.join(MODULES)}")
    report = Report()
    for name in chosen or MODULES:
        before = sum(report.counts.values())
        try:
            importlib.import_module(name).checks(program, report)
        except Exception as problem:
            # Nothing after it in this file was checked.
            report(f"{name}, the rest", raises, problem)
        if sum(report.counts.values()) == before:
            report(f"{name}", raises, Failed("it has checked nothing"))
    counts = report.counts
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["failed"] or (arguments.strict and counts["skipped"]) else 0)


def raises(problem):
    raise problem


if __name__ == "__main__":
    main()
