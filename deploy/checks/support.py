"""What the checks share: how they report, and how they start and stop real programs."""

import contextlib
import http.client
import json
import os
import pathlib
import pwd
import queue
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

DEPLOY = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = DEPLOY.parent
START_SECONDS = 120
# Longer than any command here takes on a busy machine.
COMMAND_SECONDS = 900
OPERATOR_TOKEN = "8f2c6d1be0a94c7f53d0e6b7a1c2948f"
# Runs programs that refuse to run as root, or that their images do not run as root.
NOBODY = pwd.getpwnam("nobody")
AS_NOBODY = ["setpriv", f"--reuid={NOBODY.pw_uid}", f"--regid={NOBODY.pw_gid}", "--clear-groups"]


class Failed(Exception):
    """A check that found a defect. The message says which."""


class Skipped(Exception):
    """A check that cannot run on this machine. The message says why."""


def expect(condition, problem):
    if not condition:
        raise Failed(problem)


def need(*programs):
    """Returns the paths of programs. Skips the check if one is missing."""
    found = [shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") for program in programs]
    missing = [program for program, path in zip(programs, found) if path is None]
    if missing:
        raise Skipped(f"{', '.join(missing)} not installed")
    return found if len(found) > 1 else found[0]


def need_root():
    if os.geteuid() != 0:
        raise Skipped("needs root")


def need_mounts():
    """Skips the check if this process may not mount anything, as root in most containers may not."""
    need_root()
    unshare = need("unshare")
    if run(unshare, "--mount", "sh", "-c", "mount --bind /tmp /tmp", check=False).returncode != 0:
        raise Skipped("needs the privilege to mount")


def run(*command, check=True, **options):
    """Runs a program to its end and returns the result, with its output as text."""
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, timeout=COMMAND_SECONDS, **options)
    if check and done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-2000:]
        raise Failed(f"{pathlib.Path(str(command[0])).name} exited with {done.returncode}: {said}")
    return done


@contextlib.contextmanager
def directory():
    """A temporary directory that the users of other programs can enter."""
    with tempfile.TemporaryDirectory(prefix="ledger-check-") as path:
        os.chmod(path, 0o755)
        yield pathlib.Path(path)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def certificate(where):
    """Creates a certificate authority, and a certificate of it for 127.0.0.1."""
    openssl = need("openssl")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    run(openssl, "req", "-x509", *key, "-keyout", where / "ca.key", "-out", where / "ca.pem", "-days", "2", "-subj", "/CN=checks")
    request_file, names = where / "server.csr", where / "names"
    run(openssl, "req", *key, "-keyout", where / "key.pem", "-out", request_file, "-subj", "/CN=127.0.0.1")
    names.write_text("subjectAltName=IP:127.0.0.1\n")
    issuer = ["-CA", where / "ca.pem", "-CAkey", where / "ca.key", "-CAcreateserial", "-days", "2", "-extfile", names]
    run(openssl, "x509", "-req", "-in", request_file, *issuer, "-out", where / "fullchain.pem")
    both = (where / "fullchain.pem").read_text() + (where / "key.pem").read_text()
    (where / "fullchain-and-key.pem").write_text(both)
    return ssl.create_default_context(cafile=where / "ca.pem")


def wait_for(there, what, seconds=START_SECONDS):
    """Returns the first result of `there` that is true. An error counts as no result yet."""
    end = time.monotonic() + seconds
    last = None
    while time.monotonic() < end:
        try:
            found = there()
            if found:
                return found
        except (OSError, http.client.HTTPException, Failed) as error:
            last = error
        time.sleep(0.1)
    raise Failed(f"waited {seconds} s for {what}" + (f": {last}" if last else ""))


@contextlib.contextmanager
def stopped_at_the_end(process, seconds=90):
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def node(command, environment=None):
    """Starts a node, and yields its addresses once it is ready: for clients, and for operators."""
    process = subprocess.Popen(
        [str(part) for part in command], env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    ready, said = queue.Queue(), []

    def read():
        for line in process.stderr:
            fields = json.loads(line) if line.startswith("{") else {}
            if fields.get("message") == "ready":
                ready.put(fields)
            if fields.get("target") != "access":
                said.append(line)
        ready.put(None)

    threading.Thread(target=read, daemon=True).start()
    with stopped_at_the_end(process):
        try:
            fields = ready.get(timeout=START_SECONDS)
        except queue.Empty:
            fields = None
        if fields is None:
            raise Failed("the node did not get ready: " + "".join(said)[-2000:].strip())
        address = fields.get("address")
        yield address, fields.get("operator_address") or address


def sandbox(program, data_dir, *arguments):
    """Starts a sandbox with an embedded Postgres."""
    environment = {**os.environ, "LEDGER_OPERATOR_TOKEN": OPERATOR_TOKEN}
    settings = ["--sandbox", "--log-format=json", f"--data-dir={data_dir}"]
    return node([program, "serve", *settings, *arguments], environment)


class Answer:
    def __init__(self, response):
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    def json(self):
        return json.loads(self.body)


def request(connection, method, path, body=None, headers=None):
    """Sends a request on an open connection, exactly as it is written here."""
    headers = dict(headers or {})
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    connection.request(method, path, body, headers)
    return Answer(connection.getresponse())


def operator(address, method, path, body=None, token=OPERATOR_TOKEN):
    """Sends a request to the operator API and returns the data of the answer."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        answer = request(connection, method, f"/admin/v1{path}", body, {"Authorization": f"Bearer {token}"})
    expect(answer.status < 300, f"{method} {path} returned {answer.status}: {answer.body.decode()}")
    return answer.json().get("data")
