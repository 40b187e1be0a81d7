"""rewards-ledger.service: how exposed systemd finds it, and the shell scripts. The check `package` runs the unit."""

import re

from support import DEPLOY, expect, need, run

MAX_EXPOSED = 2.0


def exposure():
    unit = DEPLOY / "rewards-ledger.service"
    said = run(need("systemd-analyze"), "security", "--offline=true", "--no-pager", unit, check=False).stdout
    found = re.search(r"Overall exposure level for rewards-ledger\.service: ([0-9.]+)", said)
    expect(found, f"systemd-analyze prints no exposure: {said[-500:]}")
    expect(float(found[1]) < MAX_EXPOSED, f"the exposure is {found[1]}, not below {MAX_EXPOSED}")


def scripts():
    shells = (b"#!/bin/sh", b"#!/usr/bin/env bash")
    found = [path for path in DEPLOY.rglob("*") if path.is_file() and path.read_bytes().startswith(shells)]
    expect(len(found) > 5, f"there are only the scripts {found}")
    run(need("shellcheck"), *found)


def checks(_program, report):
    report("shellcheck finds nothing in the scripts", scripts)
    report(f"the systemd unit has an exposure below {MAX_EXPOSED}", exposure)
