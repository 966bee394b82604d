"""Azurite, which speaks the protocol of Azure Blob Storage."""

import base64
import contextlib
import hashlib
import hmac
import shutil
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.servers.process import free_port, running

ACCOUNT = "devstoreaccount1"
# the key that every Azurite has, published by Microsoft
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
CONTAINER = "container"
PROGRAM = Path(__file__).parents[2] / ".servers/node_modules/.bin/azurite-blob"


def missing() -> str | None:
    """Why Azurite cannot run here, or None."""
    if shutil.which("node") is None:
        return "node is not installed (scripts/setup.sh installs it)"
    if not PROGRAM.exists():
        return "Azurite is not installed (scripts/setup.sh installs it)"
    return None


@dataclass(frozen=True)
class AzureServer:
    port: int

    def options(self, port: int | None = None) -> dict[str, str]:
        return {
            "azure.accountName": ACCOUNT,
            "azure.accountKey": KEY,
            "azure.endpoint": f"http://127.0.0.1:{port or self.port}/{ACCOUNT}",
        }

    def shared_access_signature(self, permissions: str = "rwdlac") -> str:
        """A signature of the account that is valid for an hour."""
        end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        version = "2020-12-06"
        text = f"{ACCOUNT}\n{permissions}\nb\nsco\n\n{end}\n\nhttp,https\n{version}\n\n"
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256))
        parts = {"sv": version, "ss": "b", "srt": "sco", "sp": permissions, "se": end, "spr": "http,https"}
        return urllib.parse.urlencode({**parts, "sig": signature.decode()})

    def create_container(self, name: str) -> None:
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06"
        resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        text = "PUT" + "\n" * 12 + headers + "\n" + resource
        signature = base64.b64encode(
            hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
        ).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{ACCOUNT}/{name}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": "2021-08-06",
                "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            },
        )
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 201


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[AzureServer]:
    port = free_port()
    command = [
        str(PROGRAM), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence",
        "--disableTelemetry", "--silent", "--skipApiVersionCheck",
    ]  # fmt: skip
    with running(command, port, folder / "azurite.log", cwd=folder):
        server = AzureServer(port)
        server.create_container(CONTAINER)
        yield server
