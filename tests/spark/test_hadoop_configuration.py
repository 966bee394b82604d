"""Spark's Hadoop configuration reaches our stores, in reads, writes, commands and tasks, and shows no secret."""

import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from indextables.options import Option, all_declarations
from tests.servers import s3
from tests.servers.s3 import STRANGER, WRITER, Key, S3Server

pytestmark = [
    pytest.mark.server,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture
def path() -> str:
    return f"s3a://{s3.BUCKET}/hadoop-{secrets.token_hex(6)}"


def session_of(spark: SparkSession, server: S3Server, key: Key) -> SparkSession:
    """A session with the keys of a user, set as Spark's users set them."""
    session = spark.newSession()
    session.conf.set("fs.s3a.endpoint", server.endpoint)
    session.conf.set("fs.s3a.path.style.access", "true")
    session.conf.set("fs.s3a.threads.max", "7")  # has no counterpart, and stops nothing
    session.conf.set("spark.hadoop.fs.s3a.access.key", key.name)
    session.conf.set("fs.s3a.secret.key", key.secret)
    return session


def write_rows(session: SparkSession, path: str, **options: Any) -> None:
    rows = session.range(4).selectExpr("id", "concat('word', id) AS t")
    rows.write.format("indextables").option("indexing.typemap.t", "text").options(**options).save(path)


def test_a_session_writes_searches_and_merges_with_keys_of_hadoop(
    spark: SparkSession, seaweed_server: S3Server, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    session = session_of(spark, seaweed_server, WRITER)
    write_rows(session, path)
    frame = session.read.format("indextables").load(path)
    found = frame.where("t INDEXQUERY 'word2 OR word3'")
    assert sorted(row.id for row in found.collect()) == [2, 3]
    assert session.sql(f"MERGE SPLITS '{path}'").collect()
    found.explain("extended")
    described = session.sql("DESCRIBE INDEXTABLES ENVIRONMENT").collect()
    keys = [row for row in described if "secret.key" in row.property_name]
    assert keys
    assert all("*" in row.property_value for row in keys)
    assert WRITER.secret not in capsys.readouterr().out + str(described)


def test_users_of_two_sessions_have_their_own_keys(
    spark: SparkSession, seaweed_server: S3Server, path: str
) -> None:
    writer = session_of(spark, seaweed_server, WRITER)
    write_rows(writer, path)
    stranger = session_of(spark, seaweed_server, STRANGER)
    with pytest.raises(Exception, match="the store refused the credentials") as caught:
        stranger.read.format("indextables").load(path).collect()
    assert STRANGER.secret not in str(caught.value)
    # options of our own are stronger
    given = seaweed_server.options_of(WRITER)
    assert stranger.read.format("indextables").options(**given).load(path).count() == 4
    assert writer.read.format("indextables").load(path).count() == 4


@pytest.fixture
def hadoop(spark: SparkSession) -> Iterator[Callable[..., Any]]:
    """The configuration that all sessions share; what a test sets is removed."""
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    names = []

    def put(name: Any, value: Any) -> None:
        names.append(name)
        configuration.set(name, value)

    yield put
    for name in names:
        configuration.unset(name)


def test_keys_of_one_bucket_and_the_default_file_system(
    spark: SparkSession, seaweed_server: S3Server, hadoop: Callable[..., Any]
) -> None:
    hadoop("fs.s3a.endpoint", seaweed_server.endpoint)
    hadoop("fs.s3a.access.key", "nobody")
    hadoop("fs.s3a.secret.key", "nothing")
    hadoop(f"fs.s3a.bucket.{s3.BUCKET}.access.key", WRITER.name)
    hadoop(f"fs.s3a.bucket.{s3.BUCKET}.secret.key", WRITER.secret)
    session = spark.newSession()
    session.conf.set("fs.defaultFS", f"s3a://{s3.BUCKET}")
    table = f"/hadoop-{secrets.token_hex(6)}"
    write_rows(session, table)
    assert session.read.format("indextables").load(f"s3a://{s3.BUCKET}{table}").count() == 4
    assert session.sql(f"DESCRIBE INDEXTABLES TRANSACTION LOG '{table}'").count() > 0


def test_keys_in_a_credential_store_of_hadoop(
    spark: SparkSession, seaweed_server: S3Server, hadoop: Callable[..., Any], path: str, tmp_path: Path
) -> None:
    hadoop("hadoop.security.credential.provider.path", f"localjceks://file{tmp_path}/keys.jceks")
    jvm = spark.sparkContext._jvm
    factory = jvm.org.apache.hadoop.security.alias.CredentialProviderFactory
    store = factory.getProviders(spark.sparkContext._jsc.hadoopConfiguration()).get(0)
    for name, value in (("access.key", WRITER.name), ("secret.key", WRITER.secret)):
        characters = spark.sparkContext._gateway.new_array(jvm.char, len(value))
        for at, character in enumerate(value):
            characters[at] = character
        store.createCredentialEntry(f"fs.s3a.{name}", characters)
    store.flush()
    session = spark.newSession()
    session.conf.set("fs.s3a.endpoint", seaweed_server.endpoint)
    write_rows(session, path)
    assert session.read.format("indextables").load(path).count() == 4


def test_a_provider_without_counterpart_is_refused_by_its_key(
    spark: SparkSession, seaweed_server: S3Server, path: str
) -> None:
    session = session_of(spark, seaweed_server, WRITER)
    session.conf.set("fs.s3a.aws.credentials.provider", "com.acme.VaultProvider")
    with pytest.raises(
        Exception, match=r"fs\.s3a\.aws\.credentials\.provider names com\.acme\.VaultProvider"
    ):
        session.read.format("indextables").load(path)
    with pytest.raises(Exception, match=r"'fs\.s3a\.threads\.max' of Hadoop has no effect here"):
        write_rows(session, path, **{**seaweed_server.options_of(WRITER), "fs.s3a.threads.max": "3"})


def test_spark_redacts_the_values_of_all_secrets(spark: SparkSession) -> None:
    pattern = re.compile(spark.sparkContext.getConf().get("spark.redaction.regex"))
    names = [
        f"spark.indextables.{each.key}"
        for each in all_declarations()
        if isinstance(each, Option) and each.secret
    ]
    names += [
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.azure.account.key.acme.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret",
        "spark.hadoop.fs.azure.sas.c.acme.blob.core.windows.net",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
    ]
    assert len(names) > 12
    assert [name for name in names if not pattern.search(name)] == []
