"""Runs the guides' Python code, which is placed beside this file, over the vectors."""

import base64
import json
import sys

from signing import canonical_string, x_signature
from webhooks import is_genuine

requests, deliveries = (json.load(open(path)) for path in sys.argv[1:3])
count = 0


def check(vector, made, expected):
    global count
    count += 1
    assert made == expected, f"{vector['name']}: {made!r} is not {expected!r}"


for vector in requests["sign"]:
    parts = [vector[name] for name in ("method", "path", "query")]
    parts += [base64.b64decode(vector["body_base64"]), vector["timestamp"]]
    check(vector, canonical_string(*parts), vector["canonical"])
    check(vector, x_signature(vector["secret"], *parts), vector["header"])
for vector in deliveries["sign"]:
    body = base64.b64decode(vector["body_base64"])
    check(vector, is_genuine(vector["token"], vector["timestamp"], body, vector["signature"], int(vector["timestamp"])), True)
for vector in deliveries["verify"]:
    body = base64.b64decode(vector["body_base64"])
    check(vector, is_genuine(vector["token"], vector["timestamp"], body, vector["signature"], vector["now"]), vector["genuine"])
print(count)
