"""A local HTTP server whose answers a test decides."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional

import pytest


class Answer:
    """A response to send; without a status, the connection is closed instead."""

    def __init__(self, status: Optional[int], body: Any = None, **headers: str) -> None:
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    @classmethod
    def error(cls, status: int, code: str, **headers: str) -> "Answer":
        return cls(status, {"error": {"name": "Error", "code": code, "message": "why"}}, **headers)


class Received:
    """A request as it arrived."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self.method = handler.command
        self.path, _, self.query = handler.path.partition("?")
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.body = handler.rfile.read(int(self.headers.get("content-length", 0)))


class Service:
    """Answers requests in the order in which a test lists the answers."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Received] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                service.requests.append(Received(self))
                answer = service.answers.pop(0)
                if answer.status is None:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()
    assert service.answers == [], "the client sent fewer requests than the test expects"
