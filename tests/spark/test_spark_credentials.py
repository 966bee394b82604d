"""Named providers of credentials in Spark: the planner and the tasks fetch them, each user his own."""

import json
import secrets
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.servers import s3
from tests.servers.identity import Catalog, service, vault_file
from tests.servers.s3 import READER, STRANGER, WRITER, Key, S3Server

pytestmark = [
    pytest.mark.server,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def session_with(spark: SparkSession, server: S3Server, **settings: Any) -> SparkSession:
    session = spark.newSession()
    session.conf.set("spark.indextables.aws.endpoint", server.endpoint)
    for key, value in settings.items():
        session.conf.set(f"spark.indextables.{key}", value)
    return session


def write_rows(session: SparkSession, path: str) -> None:
    session.range(0, 4, 1, 2).write.format("indextables").mode("append").save(path)


def keys_of(key: Key) -> dict[Any, Any]:
    return {"access_key_id": key.name, "secret_access_key": key.secret}


def test_a_function_gives_credentials_to_planner_and_tasks_until_they_expire(
    spark: SparkSession, seaweed_server: S3Server
) -> None:
    name = f"spark-{secrets.token_hex(6)}"
    file = vault_file(name)
    path = f"s3://{s3.BUCKET}/{name}/t"
    session = session_with(spark, seaweed_server, **{"credentials.provider": "tests.servers.identity:vault"})
    frame = None
    try:
        file.write_text(json.dumps(keys_of(WRITER)))
        write_rows(session, path)
        frame = session.read.format("indextables").load(path)
        assert frame.count() == 4
        assert sorted(row.id for row in frame.where("id > 1").collect()) == [2, 3]
        callers = set(file.with_suffix(".calls").read_text().split())
        assert len(callers) >= 2  # a planner, and a worker that runs tasks
        # the keys are rotated while processes and DataFrame live on
        file.write_text(json.dumps(keys_of(STRANGER)))
        with pytest.raises(Exception, match="the store refused us") as caught:
            session.read.format("indextables").load(path).collect()
        assert STRANGER.secret not in str(caught.value)
        file.write_text(json.dumps(keys_of(READER)))
        assert sorted(row.id for row in session.read.format("indextables").load(path).collect()) == [
            0,
            1,
            2,
            3,
        ]
    finally:
        file.unlink()
        file.with_suffix(".calls").unlink(missing_ok=True)


def test_unity_catalog_gives_credentials_to_planner_and_tasks(
    spark: SparkSession, seaweed_server: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"s3://{s3.BUCKET}/uc-{secrets.token_hex(6)}"
    with service(Catalog({"aws_temp_credentials": keys_of(WRITER)})) as catalog:
        settings = {"databricks.workspaceUrl": catalog.url, "databricks.apiToken": "uc-token-never-shown"}
        session = session_with(spark, seaweed_server, **settings)
        write_rows(session, path)
        frame = session.read.format("indextables").load(path).where("id > 1")
        assert sorted(row.id for row in frame.collect()) == [2, 3]
        frame.explain("extended")
        assert {json.loads(call.body)["url"] for call in catalog.calls} == {path}
        stranger = session_with(spark, seaweed_server, **{**settings, "databricks.apiToken": "another"})
        with pytest.raises(Exception, match="status 401 UNAUTHENTICATED") as caught:
            stranger.read.format("indextables").load(path)
        shown = capsys.readouterr().out + str(caught.value)
        assert WRITER.secret not in shown
        assert "never-shown" not in shown


@pytest.mark.parametrize(
    "key",
    ["credentials.provider", "databricks.workspaceUrl", "azure.endpoint", "gcp.endpoint", "fs.azure.sas.c"],
)
def test_a_catalog_does_not_decide_where_credentials_go(spark: SparkSession, key: str) -> None:
    name = f"credentials_{secrets.token_hex(4)}"
    value = "os:getcwd" if key == "credentials.provider" else "http://127.0.0.1:9"
    with pytest.raises(Exception, match=r"decides where its readers' credentials|in clear text"):
        spark.sql(f"CREATE TABLE {name} (id BIGINT) USING indextables OPTIONS ('{key}' '{value}')")
