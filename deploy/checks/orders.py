"""An order, from its account to its verified webhook, on any installation."""

import contextlib
import functools
import hashlib
import hmac
import http.client
import http.server
import json
import re
import ssl
import sys
import threading
import time

from support import REPOSITORY, certificate, expect, operator, request, wait_for

# Where an installation finds the receiver's directory.
MOUNTED = "/receiver"
# A node refuses loopback addresses and unknown authorities by default. A sandbox sets the same two for its own receiver.
SETTINGS = {"LEDGER_WEBHOOK_CA_FILE": f"{MOUNTED}/ca.pem", "LEDGER_WEBHOOK_ALLOW_NETS": "127.0.0.1/32"}


def prepare_receiver(where):
    """Creates the directory of a receiver, with its certificate. Nodes start with SETTINGS, and find it at MOUNTED."""
    where.mkdir()
    certificate(where)
    # The user of the node reads the authority.
    where.chmod(0o755)
    (where / "ca.pem").chmod(0o644)


@contextlib.contextmanager
def receiver(where, accept):
    """Receives webhooks over TLS with the certificate in a directory, and yields its URL. `accept` gets the headers and the
    body of each, and returns the status of the response."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            self.send_response(accept(self.headers, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(where / "fullchain.pem", where / "key.pem")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}/hook"
    finally:
        server.shutdown()
        server.server_close()


def by_library(token, headers, body):
    """Verifies a webhook with the published client library."""
    source = str(REPOSITORY / "clients/python/src")
    if source not in sys.path:
        sys.path.insert(0, source)
    from rewards_ledger import webhooks

    webhooks.verify(token, headers, body)


def by_hand(token, headers, body):
    """Verifies a webhook as docs/webhooks.md says. For the booted system, which does not have what the library imports."""
    timestamp = headers["X-Timestamp"]
    expected = hmac.new(token.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    expect(abs(time.time() - int(timestamp)) <= 300, f"the webhook is of the time {timestamp}")
    expect(hmac.compare_digest(expected, headers["X-Signature"]), "the signature does not match")


class Webhooks:
    """Accepts the webhooks that are signed with a token, and keeps their events."""

    def __init__(self, verify):
        self.verify, self.token, self.events, self.refused = verify, None, [], []

    def accept(self, headers, body):
        try:
            self.verify(self.token, headers, body)
        except Exception as problem:
            self.refused.append(repr(problem))
            return 401
        self.events.append(json.loads(body))
        return 200

    def has_delivered(self, order):
        expect(not self.refused, f"the receiver has refused webhooks: {self.refused}")
        return any(event["event_type"] == "order.delivered" and event["data"]["id"] == order for event in self.events)


def delivered_order(address, operators, token, where, verify=by_library, nodes=()):
    """Opens an account with money, a product with stock, a key, and a webhook to a receiver, and places an order. Waits until
    the worker has delivered it, the receiver has verified the webhook of that, and the node knows that it arrived. If nodes are
    given, by their operators' addresses, places further orders until one of them has handed commands to another."""
    post = functools.partial(operator, operators, "POST", token=token)
    account = post("/accounts", {"name": "Acme"})["id"]
    wallet = post(f"/accounts/{account}/wallets", {"currency": "EUR"})["id"]
    post(f"/wallets/{wallet}/fund", {"amount": "10000.00", "reference": "opening"})
    product = {"name": "Card", "brand": "Acme", "country": "DE", "currency": "EUR", "max_quantity": 5}
    product = post("/products", {**product, "denomination_type": "FIXED", "denominations": ["25.00"]})["id"]
    stock = {"denomination": "25.00", "vouchers": [{"card_number": "card-1", "pin": "1234"}]}
    post(f"/products/{product}/vouchers", stock)
    issued = post(f"/accounts/{account}/credentials", {"name": "main"})
    key = {"X-API-Key": issued["api_key"], "X-API-Secret": issued["api_secret"]}
    webhooks = Webhooks(verify)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(receiver(where, webhooks.accept))
        connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection(address, timeout=60)))

        def ask(method, path, body=None):
            answer = request(connection, method, f"/api/v1{path}", body, key)
            expect(answer.status < 300, f"{method} {path} returned {answer.status}: {answer.body.decode()}")
            return answer.json()

        webhooks.token = ask("POST", "/webhooks", {"name": "main", "url": url, "events": ["order.delivered"]})["token"]
        def place():
            return ask("POST", "/orders", {"product_id": product, "denomination": 25, "quantity": 1})["data"]["id"]

        order = place()

        def arrived():
            return [each["status"] for each in ask("GET", "/webhooks/deliveries")["data"]["deliveries"]] == ["delivered"]

        wait_for(lambda: ask("GET", f"/orders/{order}")["data"]["status"] == "DELIVERED", "the order's delivery", 60)
        wait_for(lambda: webhooks.has_delivered(order), "the webhook of the order's delivery", 60)
        wait_for(arrived, "the node to know that the webhook arrived", 60)
        if nodes:
            # A node hands nothing to a leader that has not answered it yet, so the first order may come too early.
            wait_for(lambda: handed_over(nodes) or not place(), "commands that were handed over", 60)


def handed_over(nodes):
    """Returns whether one of the nodes leads the shard and has answered commands of the others. Each is named by its operators'
    address."""
    text = ""
    for address in nodes:
        with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
            text += request(connection, "GET", "/metrics").body.decode()
    leads = sum(float(value) for value in re.findall(r"^ledger_leads\{.*\} (\S+)$", text, re.MULTILINE))
    expect(leads == 1, f"{leads:.0f} nodes lead the shard")
    counted = re.findall(r'^ledger_handed_over_total\{.*outcome="(\w+)".*\} (\S+)$', text, re.MULTILINE)
    commands = {outcome: sum(float(value) for name, value in counted if name == outcome) for outcome, _ in counted}
    return commands.get("answered", 0) > 0
