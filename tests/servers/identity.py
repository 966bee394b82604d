"""Services that issue credentials: a machine's metadata, AWS STS, Azure's OAuth, Unity Catalog; and a file as a vault."""

import contextlib
import json
import os
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Call:
    """A request that a service got."""

    method: str
    path: str
    headers: dict[str, str]
    body: str


@dataclass
class Service:
    """A service on 127.0.0.1; `answer` gives a status and a text, or a value that becomes JSON."""

    answer: Callable[[Call], tuple[int, Any]]
    port: int = 0
    scheme: str = "http"
    calls: list[Call] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"


@contextlib.contextmanager
def service(answer: Callable[[Call], tuple[int, Any]], certificate: Path | None = None) -> Iterator[Service]:
    """Run a service in threads of this process; encrypted if a folder for its certificate is given."""
    running = Service(answer)

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
            call = Call(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            running.calls.append(call)
            status, value = running.answer(call)
            text = value if isinstance(value, str) else json.dumps(value)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", text)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = do_POST = handle_any  # noqa: N815 - names that the base class calls

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.port = server.server_port
    if certificate is not None:
        running.scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*_self_signed(certificate))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _self_signed(folder: Path) -> tuple[Path, Path]:
    """The files of a certificate for 127.0.0.1 and of its key."""
    from cryptography import x509  # noqa: PLC0415 - slow, and few tests need it
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    files[1].write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    return files


def in_an_hour() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")


def machine_role(call: Call) -> tuple[int, Any]:
    """What a machine in EC2 can ask for its role's keys."""
    if call.method == "PUT":
        return 200, "a-token"
    return (200, role_keys("of-machine")) if call.path.endswith("/the-role") else (200, "the-role")


def role_keys(name: str) -> dict[str, str]:
    end = in_an_hour()
    keys = {"AccessKeyId": name, "SecretAccessKey": "s", "Token": "t", "Expiration": end}
    return {"Code": "Success", "LastUpdated": end, "Type": "AWS-HMAC", **keys}


@dataclass
class Catalog:
    """Unity Catalog's answers: it knows one token and one service principal."""

    credentials: dict[str, Any]
    token: str = "uc-token-never-shown"
    client: str = "Basic aWQ6dWMtc2VjcmV0"  # id:uc-secret
    lifetime: timedelta = timedelta(hours=1)
    readers_only: bool = False

    def __call__(self, call: Call) -> tuple[int, Any]:
        if call.path == "/oidc/v1/token":
            allowed = call.headers.get("authorization") == self.client
            return (200, {"access_token": self.token, "expires_in": 3600}) if allowed else (401, {})
        if call.headers.get("authorization") != f"Bearer {self.token}":
            return 401, {
                "error_code": "UNAUTHENTICATED",
                "message": f"bad {call.headers.get('authorization')}",
            }
        if call.path == "/api/2.1/unity-catalog/tables/main.logs.events":
            return 200, {"table_id": "table-7", "storage_location": "s3://bucket/x"}
        request = json.loads(call.body or "{}")
        if self.readers_only and "WRITE" in request.get("operation", ""):
            return 403, {"error_code": "PERMISSION_DENIED"}
        expiration = datetime.now(UTC) + self.lifetime
        if call.path.endswith(("/temporary-path-credentials", "/temporary-table-credentials")):
            return 200, {**self.credentials, "expiration_time": int(expiration.timestamp() * 1000)}
        return 404, {"error_code": "ENDPOINT_NOT_FOUND"}


def vault_file(name: str) -> Path:
    return Path(tempfile.gettempdir()) / f"indextables-vault-{name}.json"


def vault(url: str) -> dict[str, Any]:
    """Credentials for a table, from a file named by the first folder of its URL; calls are noted beside it.

    They have expired already, so they are fetched for every request.
    """
    file = vault_file(url.split("/")[3])
    with file.with_suffix(".calls").open("a") as calls:
        calls.write(f"{os.getpid()}\n")
    keys = json.loads(file.read_text())
    return {**keys, "expires_at": datetime(2020, 1, 1, tzinfo=UTC)}
