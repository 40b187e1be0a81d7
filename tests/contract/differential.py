"""Independent implementations of what the program computes. Reads cases by kind as JSON, and writes a result for each.

They share nothing with the program or its client libraries, and prefer the plainest way: fractions for money, a recursive
definition for trees.
"""

import base64
import hashlib
import hmac
import json
import sys
from fractions import Fraction

MAX_CENTS = 999_999_999_999_999_999


def money(cents):
    """Rounds to whole cents, halves away from zero. None if the amount is too large."""
    whole = int(abs(cents) + Fraction(1, 2)) * (1 if cents >= 0 else -1)
    return whole if abs(whole) <= MAX_CENTS else None


def price(case):
    face = Fraction(case["denomination"]) * case["quantity"]
    face_value, amount = money(face), money(face * (1 - Fraction(case["discount"], 10_000)))
    return None if face_value is None or amount is None else [face_value, face_value - amount, amount]


def refund(case):
    return case["amount"] - money(Fraction(case["amount"] * case["delivered"], case["quantity"]))


def wallet(case):
    balance, accepted = 0, []
    for kind, cents in case["movements"]:
        after = balance - cents if kind in ("pay", "debit") else balance + cents
        is_good = after <= MAX_CENTS if kind in ("fund", "refund", "credit") else after >= 0
        balance = after if is_good else balance
        accepted.append(is_good)
    return [balance, accepted]


def signature(case):
    path = case["path"]
    while path.endswith("/"):
        path = path[:-1]
    pairs = []
    for pair in case["query"].split("&"):
        if pair != "":
            key, _, value = pair.partition("=")
            pairs.append((key.encode(), len(pairs), f"{key}={value}"))
    body = hashlib.sha256(base64.b64decode(case["body"])).hexdigest()
    lines = [case["method"].upper(), path or "/", "&".join(text for _, _, text in sorted(pairs)), body, str(case["timestamp"])]
    canonical = "\n".join(lines)
    return [canonical, hmac.new(case["secret"].encode(), canonical.encode(), hashlib.sha256).hexdigest()]


def root(leaves):
    """RFC 6962, section 2.1."""
    if len(leaves) <= 1:
        return hashlib.sha256(b"\0" + leaves[0] if leaves else b"").digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\1" + root(leaves[:split]) + root(leaves[split:])).digest()


def tree(case):
    return root([base64.b64decode(leaf) for leaf in case["leaves"]]).hex()


KINDS = {"price": price, "refund": refund, "wallet": wallet, "signature": signature, "tree": tree}
given = json.load(sys.stdin)
json.dump({kind: [KINDS[kind](case) for case in cases] for kind, cases in given.items()}, sys.stdout)
