"""nginx.conf and haproxy.cfg, with the real proxies in front of a sandbox."""

import contextlib
import functools
import hashlib
import hmac
import http.client
import os
import pathlib
import ssl
import threading
import time
import types
import urllib.parse

from support import DEPLOY, Failed, certificate, directory, expect, free_port, need, operator, request, run, sandbox, wait_for

PUBLIC_URL = "https://rewards.example.com"
PASSWORD = "correct horse battery staple"
# Proxies connect from 127.0.0.1, and the checks' clients from other addresses of this machine.
CLIENT, STRANGER = "127.0.0.5", "127.0.0.6"
NEAR_LIMIT, OVER_LIMIT = 1_000_000, 3_000_000


def adapted(sample, changes):
    """Returns a sample with the addresses and files of this test. Each change must occur, so that the sample is what runs."""
    text = (DEPLOY / sample).read_text()
    for old, new in changes.items():
        expect(old in text, f"{sample} has no {old!r}")
        text = text.replace(old, new)
    return text


def nginx(where, port, node_port):
    site = adapted("nginx.conf", {
        "server 127.0.0.1:8080;": f"server 127.0.0.1:{node_port};",
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "/etc/ssl/rewards-ledger": str(where),
    })
    home = where / "nginx"
    home.mkdir()
    paths = "".join(f"{kind}_temp_path {home}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = home / "nginx.conf"
    config.write_text(
        f"pid {home}/pid;\nerror_log {home}/error.log;\nworker_processes 1;\nuser nobody nogroup;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}{site}}}\n"
    )
    run(need("nginx"), "-q", "-c", config, "-e", home / "error.log")
    return home / "pid"


def haproxy(where, port, node_port):
    config = where / "haproxy.cfg"
    config.write_text(adapted("haproxy.cfg", {
        "127.0.0.1:8080": f"127.0.0.1:{node_port}",
        "bind :443": f"bind 127.0.0.1:{port}",
        "/etc/ssl/rewards-ledger": str(where),
    }))
    pid = where / "haproxy.pid"
    run(need("haproxy"), "-D", "-q", "-f", config, "-p", pid)
    return pid


@contextlib.contextmanager
def proxies(where, node_port):
    """Starts both proxies and yields their ports and processes. Each has bound its port before it becomes a daemon."""
    started = {}
    try:
        for start in (nginx, haproxy):
            port = free_port()
            file = start(where, port, node_port)
            pid = wait_for(lambda file=file: file.read_text().split(), f"the process of {start.__name__}", 30)[0]
            started[start.__name__] = port, pid
        yield started
    finally:
        for _, pid in started.values():
            run("kill", "-TERM", pid)
            process = pathlib.Path("/proc", pid)
            wait_for(lambda process=process: not process.exists(), "the end of a proxy", 30)


def set_up(address):
    """Creates an account with a wallet, a key for one network, a key that must sign, and a user."""
    post = functools.partial(operator, address, "POST")
    account = post("/accounts", {"name": "Acme"})["id"]
    wallet = post(f"/accounts/{account}/wallets", {"currency": "USD"})["id"]
    post(f"/wallets/{wallet}/fund", {"amount": "10000.00", "reference": "opening"})
    issue = functools.partial(post, f"/accounts/{account}/credentials")
    restricted, signed = issue({"name": "one network", "allowed_networks": [f"{CLIENT}/32"]}), issue({"name": "signed"})
    secret = operator(address, "PUT", f"/credentials/{signed['id']}", {"hmac_required": True})["signing_secret"]
    post(f"/accounts/{account}/users", {"email": "jo@example.com", "password": PASSWORD, "role": "owner"})
    return types.SimpleNamespace(restricted=key_headers(restricted), signed=key_headers(signed), secret=secret)


def key_headers(issued):
    return {"X-API-Key": issued["api_key"], "X-API-Secret": issued["api_secret"]}


class Route:
    """One way to the node: directly, or through a proxy."""

    def __init__(self, port, keys, context=None, authority=None, pid=None):
        self.port, self.keys, self.context, self.authority, self.pid = port, keys, context, authority, pid

    def connect(self, source=CLIENT):
        to = dict(host="127.0.0.1", port=self.port, timeout=60, source_address=(source, 0))
        return http.client.HTTPSConnection(context=self.context, **to) if self.context else http.client.HTTPConnection(**to)

    def send(self, method, target, body=None, headers=None, source=CLIENT):
        with contextlib.closing(self.connect(source)) as connection:
            return request(connection, method, target, body, headers)

    def signed(self, method, target, body=b"", covered=None):
        """Sends a request with the signature of docs/signing.md, over another target if one is given."""
        path, _, query = (covered or target).partition("?")
        pairs = sorted((pair.partition("=") for pair in query.split("&") if pair), key=lambda pair: pair[0].encode())
        query = "&".join(f"{key}={value}" for key, _, value in pairs)
        now = int(time.time())
        text = "\n".join([method, path.rstrip("/") or "/", query, hashlib.sha256(body).hexdigest(), str(now)])
        signature = hmac.new(self.keys.secret.encode(), text.encode(), hashlib.sha256).hexdigest()
        headers = {**self.keys.signed, "X-Signature": f"t={now},v1={signature}"}
        if body:
            headers["Content-Type"] = "application/json"
        return self.send(method, target, body or None, headers)

    def order(self):
        body = b'{"product_id": 1, "denomination": 25, "quantity": 1}'
        answer = self.signed("POST", "/api/v1/orders", body)
        expect(answer.status in (200, 201, 202), f"an order returned {answer.status}: {answer.body.decode()}")


def signatures(route, direct):
    for target in (
        "/api/v1/orders/?status=DELIVERED&limit=2",
        "/api/v1/orders?limit=2&client_reference=a%2Fb%20c",
        "/api/v1/orders?limit=2&&client_reference=%C3%A9+x",
        "/api/v1/orders/%31",
        "/api/v1//orders",
        "/api/v1/wallets/../orders",
    ):
        answers = [way.signed("GET", target) for way in (direct, route)]
        (expected, body), (status, got) = [(answer.status, answer.json()) for answer in answers]
        expect(expected != 401, f"{target} is refused directly: {body}")
        for message in (body, got):
            message.pop("request_id", None)
        expect((status, got) == (expected, body), f"{target} returned {status} {got} instead of {expected} {body}")
    forged = route.signed("GET", "/api/v1/orders?limit=2", covered="/api/v1/orders?limit=3")
    expect(forged.status == 401, f"a wrong signature returned {forged.status}")
    route.order()


def sources(route, is_trusted):
    """A key for one network tells from which address the node thinks that a request comes."""
    wallets = functools.partial(route.send, "GET", "/api/v1/wallets")
    client = wallets(headers=route.keys.restricted).status
    expect((client == 200) == is_trusted, f"the client's own address returned {client}")
    forged = {**route.keys.restricted, "X-Forwarded-For": CLIENT}
    stranger = wallets(headers=forged, source=STRANGER).status
    expect(stranger in (401, 403), f"a forged X-Forwarded-For returned {stranger}")


def polls(route, _direct):
    def poll(after, wait):
        answer = route.send("GET", f"/api/v1/events?after={after}&wait={wait}", headers=route.keys.restricted)
        expect(answer.status == 200, f"a long poll returned {answer.status}")
        return answer.json()["data"]

    page = poll("latest", 1)
    while page["events"]:  # of the orders of other checks
        page = poll(page["cursor"], 1)
    heard = []
    waiter = threading.Thread(target=lambda: heard.append(poll(page["cursor"], 30)))
    waiter.start()
    route.order()
    waiter.join(60)
    expect(heard and heard[0]["events"], "a long poll got no event")


def streams(route, _direct):
    form = urllib.parse.urlencode({"email": "jo@example.com", "password": PASSWORD, "to": "/portal"})
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": PUBLIC_URL}
    login = route.send("POST", "/portal/login", form.encode(), headers)
    cookies = "; ".join(value.split(";")[0] for value in login.headers.get_all("Set-Cookie", []))
    expect(login.status in (302, 303) and cookies, f"the login returned {login.status}")
    with contextlib.closing(route.connect()) as connection:
        connection.request("GET", "/portal/live", headers={"Cookie": cookies})
        # Arrives only if the proxy passes on the head before there is any event.
        response = connection.getresponse()
        kind = response.headers.get("Content-Type", "")
        expect(response.status == 200 and kind.startswith("text/event-stream"), f"the stream returned {response.status} {kind}")
        route.order()
        line = response.readline()
        while line and line.strip() != b"event: changed":
            line = response.readline()
        expect(line, "the stream ended without an event")


def limits(route, _direct):
    """The node refuses large bodies, and the proxy does not."""
    for size, expected in ((NEAR_LIMIT, (400, 422)), (OVER_LIMIT, (413,))):
        with contextlib.closing(route.connect()) as connection:
            headers = {**route.keys.restricted, "Content-Type": "application/json", "Content-Length": str(size)}
            connection.putrequest("POST", "/api/v1/orders")
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            try:
                connection.send(b"{" + b" " * (size - 2) + b"}")
            except OSError:
                pass  # The answer may come before the end of the body, and end the connection.
            answer = connection.getresponse()
            body = answer.read()
            expect(answer.status in expected, f"a body of {size} bytes returned {answer.status}: {body[:200]}")
            expect(b'"code"' in body, f"a body of {size} bytes was not answered by the node: {body[:200]}")


def held(pid, port):
    """Returns the local ports of a process's connections to a port, with those of its children."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    links = [link for each in (pid, *children) for link in pathlib.Path(f"/proc/{each}/fd").iterdir()]
    sockets = set()
    for link in links:
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            sockets.add(os.readlink(link).removeprefix("socket:[").rstrip("]"))
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    established = [row for row in rows if row[3] == "01" and row[9] in sockets]
    return {row[1] for row in established if int(row[2].split(":")[1], 16) == port}


def connections(route, direct):
    seen = []
    # A proxy drops connections that are idle for seconds, which a busy machine may need for a round.
    while len(seen) < 2 or (len(seen) < 6 and not seen[-2] & seen[-1]):
        with contextlib.closing(route.connect()) as connection:
            for _ in range(3):
                answer = request(connection, "GET", "/api/v1/wallets", headers=route.keys.restricted)
                expect(answer.status == 200, f"a request returned {answer.status}")
                expect(connection.sock is not None, "the proxy closed the client's connection")
        seen.append(held(route.pid, direct.port))
    expect(seen[-2] & seen[-1], f"the proxy keeps no connection to the node: {seen}")


def http_2(route, _direct):
    curl = need("curl")
    quiet = ["--silent", "--output", "/dev/null", "--write-out", "%{http_version} %{http_code}"]
    said = run(curl, "--http2", "--cacert", route.authority, *quiet, f"https://127.0.0.1:{route.port}/healthz")
    expect(said.stdout == "2 200", f"HTTP/2 returned {said.stdout!r}")


def certificates(route, _direct):
    """A client verifies the certificate, and an old version of TLS is refused."""
    try:
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", route.port, timeout=60)) as connection:
            connection.request("GET", "/healthz")
        raise Failed("a client that does not know the authority accepts the certificate")
    except ssl.SSLCertVerificationError:
        pass
    version = request(connection := route.connect(), "GET", "/healthz") and connection.sock.version()
    connection.close()
    expect(version in ("TLSv1.2", "TLSv1.3"), f"the connection uses {version}")


def ready(routes):
    """Waits until each proxy has noticed that the node is ready."""
    for name, route in routes.items():
        wait_for(lambda route=route: route.send("GET", "/healthz").status == 200, f"{name} to find the node")


CHECKS = {
    "has a certificate that clients verify": certificates,
    "keeps connections on both sides": connections,
    "passes on signed requests unchanged": signatures,
    "hands on the client's address to a node that trusts it": lambda route, _: sources(route, True),
    "holds long polls": polls,
    "passes on events of a stream at once": streams,
    "leaves the limit of bodies to the node": limits,
    "offers HTTP/2 to clients": http_2,
}


def checks(program, report):
    need("nginx", "haproxy", "openssl")
    with directory() as where:
        context, port = certificate(where), free_port()
        settings = [f"--listen=127.0.0.1:{port}", "--operator-listen=127.0.0.1:0", f"--public-url={PUBLIC_URL}"]
        start = functools.partial(sandbox, program, where / "data", *settings)
        with proxies(where, port) as started:
            with start("--trusted-proxies=127.0.0.1/32") as (_, operators):
                keys = set_up(operators)
                direct = Route(port, keys)
                routes = {name: Route(at, keys, context, where / "ca.pem", pid) for name, (at, pid) in started.items()}
                ready(routes)
                for name, route in routes.items():
                    for sentence, check in CHECKS.items():
                        report(f"{name} {sentence}", check, route, direct)
            with start():
                ready(routes)
                for name, route in routes.items():
                    report(f"{name}'s word counts nothing for a node that does not trust it", sources, route, False)
