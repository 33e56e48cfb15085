"""The page and its answers over HTTP, for this computer alone.

The server listens on 127.0.0.1. Pages of other sites cannot use it: a request whose Host is another name, which a site
may have pointed at this address, is refused, and so is one whose Origin is another, or that is no JSON, which a site
can send without asking first. Answers are never kept, and the page loads nothing but itself.
"""

from __future__ import annotations

import json
import sys
import threading
import warnings
import webbrowser
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from nearfield.explore.explorer import Explorer
from nearfield.explore.fields import Refused

ADDRESS = "127.0.0.1"
_MOST_BYTES = 2**20  # of a request
_USUAL_PORT = 80  # which browsers leave out
_IDLE = 120  # seconds after which a connection that says nothing is closed
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Page(ThreadingHTTPServer):
    """The server of one model; `port` 0 takes any that is free."""

    daemon_threads = True

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        super().__init__((ADDRESS, port), _Handler)
        self.explorer, self.turn = explorer, threading.Lock()
        end = f":{self.server_port}" if self.server_port != _USUAL_PORT else ""
        self.names = {f"{host}{end}" for host in (ADDRESS, "localhost")}
        self.files = _files()

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error; anything else is told in its answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(page: Page, browser: bool = True) -> None:
    """Serve until interrupted, and open a browser; prints where the page is and how to stop."""
    with page:
        print(f"{page.explorer.name} is at {page.address}")
        print("The page shows training rows. Stop with Ctrl-C.", flush=True)
        if browser:  # some browsers return when they are closed
            threading.Thread(target=webbrowser.open, args=(page.address,), daemon=True).start()
        try:
            page.serve_forever()
        except KeyboardInterrupt:
            print("\nStopped.")


def _files() -> dict[str, tuple[str, bytes]]:
    """Type and content of the files of the page, by path."""
    own = files("nearfield.explore") / "page"
    colours = (files("nearfield.report") / "templates" / "colours.css").read_bytes()
    return {
        "/": ("text/html", (own / "index.html").read_bytes()),
        "/explore.css": ("text/css", colours + (own / "explore.css").read_bytes()),
        **{f"/{name}": ("text/javascript", (own / name).read_bytes()) for name in ("explore.js", "form.js", "draw.js")},
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Page
    timeout = _IDLE

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if not self._allowed():
            return
        if path in self.server.files:
            kind, content = self.server.files[path]
            self._send(HTTPStatus.OK, f"{kind}; charset=utf-8", content)
        else:
            own = self.server.explorer
            self._answer(path, {"/api/model": own.described, "/api/row": own.random_row})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        sent = self.rfile.read(int(length)) if length.isdecimal() and int(length) <= _MOST_BYTES else None
        asked = self._read(sent) if self._allowed() else None
        if asked is not None:
            own = self.server.explorer
            questions = {"/api/predict": own.predicted, "/api/effects": own.effects, "/api/neighbours": own.neighbours}
            self._answer(self.path, {path: _with(question, asked) for path, question in questions.items()})

    def _allowed(self) -> bool:
        """Whether the request comes from the page itself, or from a program on this computer; else it is refused."""
        host, origin = self.headers.get("Host", "").lower(), self.headers.get("Origin")
        if host not in self.server.names:
            self._refuse(HTTPStatus.FORBIDDEN, f"The host {host!r} is not this server: open {self.server.address}")
        elif origin is not None and origin.removeprefix("http://") not in self.server.names:
            self._refuse(HTTPStatus.FORBIDDEN, f"Requests from {origin!r} are refused: open {self.server.address}")
        else:
            return True
        return False

    def _read(self, sent: bytes | None) -> Any:
        """What was sent as JSON; None if it was refused."""
        if self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Content-Type: application/json is expected.")
        elif sent is None:
            told = f"Content-Length of at most {_MOST_BYTES:,} bytes is expected."
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, told)
        else:
            try:
                asked = json.loads(sent)
                return {} if asked is None else asked
            except (ValueError, RecursionError) as error:
                self._refuse(HTTPStatus.BAD_REQUEST, f"The request is not JSON: {error}")
        return None

    def _answer(self, path: str, questions: Mapping[str, Callable[[], dict[str, Any]]]) -> None:
        """One question at a time: each may use all processors."""
        if path not in questions:
            self._refuse(HTTPStatus.NOT_FOUND, f"There is nothing at {path[:80]!r} for {self.command}.")
            return
        try:
            with self.server.turn, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is to be said of a row is in the answer
                found = questions[path]()
            self._json(HTTPStatus.OK, found)
        except Refused as error:
            self._json(HTTPStatus.BAD_REQUEST, {"error": str(error), "column": error.column})
        except ValueError as error:
            self._json(HTTPStatus.BAD_REQUEST, {"error": str(error), "column": None})
        except ConnectionError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}. This is a fault of nearfield, not of what was asked."
            self._json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": told, "column": None})

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self.close_connection = True  # what else was sent is not read
        self._json(status, {"error": message, "column": None})

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the standard library refuses, such as other methods, in the same way."""
        self._refuse(HTTPStatus(code), message or HTTPStatus(code).phrase)

    def _json(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        told = json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
        self._send(status, "application/json; charset=utf-8", told)

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **_HEADERS}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def version_string(self) -> str:
        return "nearfield"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal has the address to be found again."""


def _with(question: Callable[[Any], dict[str, Any]], asked: Any) -> Callable[[], dict[str, Any]]:
    return lambda: question(asked)
