"""A loopback server that speaks the chat-completions form and fails as told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "org/tiny-judge"


class FakeServer:
    """Answers with `reply(body, number)`: a text, a fault name, or a whole response object."""

    def __init__(self, reply: Callable[[dict[str, Any], int], Any], models=(MODEL,)) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.in_flight = self.most_in_flight = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                data = [{"id": m, "object": "model", "created": 0, "owned_by": "x"} for m in models]
                self._send(200, {"object": "list", "data": data})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer._lock:
                    number = len(outer.bodies)
                    outer.bodies.append(body)
                    outer.in_flight += 1
                    outer.most_in_flight = max(outer.most_in_flight, outer.in_flight)
                try:
                    self._respond(reply(body, number), body)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the client gave up, as some tests want
                finally:
                    with outer._lock:
                        outer.in_flight -= 1

            def _respond(self, answer: Any, body: dict[str, Any]) -> None:
                if answer == "429":
                    self._send(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.01"})
                elif answer in ("400", "500", "503"):
                    self._send(int(answer), {"error": {"message": f"status {answer}"}})
                elif answer == "cut":
                    self.send_response(200)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", "5000")
                    self.end_headers()
                    self.wfile.write(b'{"id": "x", "choi')
                    self.wfile.flush()
                    self.connection.close()
                elif answer == "malformed":
                    self._raw(200, b'{"choices": [')
                elif answer == "slow":
                    time.sleep(1.0)
                    self._send(200, completion("too late", body["model"]))
                elif isinstance(answer, dict):
                    self._send(200, answer)
                else:
                    self._send(200, completion(answer, body["model"]))

            def _send(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
                self._raw(status, json.dumps(value).encode(), headers)

            def _raw(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def completion(text: str, model: str = MODEL, finish_reason: str = "stop") -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [choice],
    }
