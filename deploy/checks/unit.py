"""rewards-ledger.service: how exposed systemd finds it. The check `package` runs it."""

import re

from support import DEPLOY, expect, need, run

MOST_EXPOSED = 2.0


def exposure():
    unit = DEPLOY / "rewards-ledger.service"
    said = run(need("systemd-analyze"), "security", "--offline=true", "--no-pager", unit, check=False).stdout
    found = re.search(r"Overall exposure level for rewards-ledger\.service: ([0-9.]+)", said)
    expect(found, f"systemd-analyze prints no exposure: {said[-500:]}")
    expect(float(found[1]) < MOST_EXPOSED, f"the exposure is {found[1]}, not below {MOST_EXPOSED}")


def checks(_program, report):
    report(f"the systemd unit has an exposure below {MOST_EXPOSED}", exposure)
