"""The README's examples run as they are printed."""

import os
import pathlib
import re

import pytest

README = (pathlib.Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.strip().splitlines()[-1].strip())
def test_an_example_runs(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "LEDGER_URL" in example and "LEDGER_URL" not in os.environ:
        pytest.skip("clients/test starts the sandbox")
    monkeypatch.setenv("LEDGER_WEBHOOK_TOKEN", "the-token")
    exec(compile(example, "README.md", "exec"), {"__name__": "example"})


def test_the_readme_has_an_example_of_everything() -> None:
    text = "\n".join(EXAMPLES)
    for name in ("place_order", "iter_orders", "follow_events", "webhooks.verify", "flask", "fastapi", "django"):
        assert name in text
