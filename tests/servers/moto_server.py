"""moto as a server whose conditional writes are atomic, as those of S3 are: `python -m tests.servers.moto_server PORT`.

moto itself looks for an object and writes it later, so that two requests at the same time can both create it.
"""

import io
import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

_CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")


class AtomicConditions:
    """An application that handles one conditional write at a time."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in {"PUT", "POST"} or not any(map(environ.get, _CONDITIONS)):
            return self._answer(environ, start_response)
        if length := int(environ.get("CONTENT_LENGTH") or 0):
            # A client that stops in the middle must not hold up the others.
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self._lock:
            return self._answer(environ, start_response)

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        result: Iterable[bytes] = self._application(environ, start_response)
        return result


if __name__ == "__main__":
    application = DomainDispatcherApplication(create_backend_app)
    handler = MotoRequestHandler
    port = int(sys.argv[1])
    run_simple("127.0.0.1", port, AtomicConditions(application), threaded=True, request_handler=handler)
