"""Named providers of credentials in Spark: the planner and the tasks fetch them, each user his own."""

import json
import secrets
from pathlib import Path
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
        with pytest.raises(Exception, match="the store refused the credentials") as caught:
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


def options_of(server: S3Server) -> dict[str, str]:
    keys = {"aws.accessKey": WRITER.name, "aws.secretKey": WRITER.secret}
    return {"aws.endpoint": server.endpoint, "aws.region": "us-east-1", **keys}


def test_a_write_whose_options_alone_have_credentials_succeeds_and_refreshes_what_is_cached(
    spark: SparkSession, seaweed_server: S3Server
) -> None:
    path = f"s3://{s3.BUCKET}/own-{secrets.token_hex(6)}/t"
    keys = options_of(seaweed_server)
    spark.catalog.clearCache()
    try:
        spark.range(4).write.format("indextables").options(**keys).save(path)
        cached = spark.read.format("indextables").options(**keys).load(path).cache()
        assert cached.count() == 4
        write = spark.range(4, 6).write.format("indextables").options(**keys)
        write.option("optimizeWrite.enabled", "false").mode("append").save(path)
        assert cached.count() == 6
        spark.range(9).write.format("indextables").options(**keys).mode("overwrite").save(path)
        assert cached.count() == 9
    finally:
        spark.catalog.clearCache()


def test_a_stream_whose_options_alone_have_credentials_commits_and_refreshes_what_is_cached(
    spark: SparkSession, seaweed_server: S3Server, tmp_path: Path
) -> None:
    path = f"s3://{s3.BUCKET}/own-{secrets.token_hex(6)}/t"
    keys = options_of(seaweed_server)
    spark.catalog.clearCache()
    try:
        spark.range(4).write.format("indextables").options(**keys).save(path)
        cached = spark.read.format("indextables").options(**keys).load(path).cache()
        assert cached.count() == 4
        spark.range(4, 6).write.parquet(str(tmp_path / "rows"))
        rows = spark.readStream.schema("id long").parquet(str(tmp_path / "rows"))
        stream = rows.writeStream.format("indextables").options(**keys)
        stream = stream.option("checkpointLocation", str(tmp_path / "c"))
        query = stream.trigger(availableNow=True).start(path)
        query.awaitTermination()
        assert cached.count() == 6
    finally:
        spark.catalog.clearCache()


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
