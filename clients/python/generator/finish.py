"""Finishes a generated package in place: finish.py DIRECTORY

Removes files that the templates leave empty, turns the packages that have one file into modules, and hides the values of
secret fields from `repr`.
"""

import pathlib
import re
import sys

# Fields whose values are secrets, in requests and responses.
SECRETS = (
    "access_token", "api_secret", "card_number", "claim_url", "current_password", "new_password", "otp", "otpauth_url", "password",
    "pin", "recovery_codes", "refresh_token", "secret", "signing_secret", "token",
)
FIELD = re.compile(rf"^    ({'|'.join(SECRETS)}): (.+?)( = UNSET)?$", re.MULTILINE)


def hidden(field):
    name, kind, default = field.groups()
    return f"    {name}: {kind} = _attrs_field({'default=UNSET, ' if default else ''}repr=False)"


def main():
    directory = pathlib.Path(sys.argv[1])
    for path in sorted(directory.rglob("*.py")):
        if not path.read_text(encoding="utf-8").strip():
            path.unlink()
    for path in sorted((directory / "api").glob("*/__init__.py")):
        # A module's relative imports start one level higher than those of a package.
        text = re.sub(r"^from \.", "from ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        path.unlink()
        path.parent.rmdir()
        path.parent.with_suffix(".py").write_text(text, encoding="utf-8")
    for path in (directory / "models").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        head, mark, rest = text.partition("    def to_dict(")
        path.write_text(FIELD.sub(hidden, head) + mark + rest, encoding="utf-8")


if __name__ == "__main__":
    main()
