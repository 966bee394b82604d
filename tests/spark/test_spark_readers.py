"""Spark's long-lived processes, the planner's and the workers', read with the keys of each query."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import indextables
from tests.servers import s3
from tests.servers.s3 import LISTER, READER, STRANGER, WRITER, Key, S3Server

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.mark.parametrize("inline", ["0", "1000"], ids=["by tasks", "by the planner"])
def test_a_query_reads_with_its_own_keys_in_processes_that_others_warmed(
    spark: SparkSession, seaweed_server: S3Server, tmp_path: Path, inline: str
) -> None:
    url = f"s3://{s3.BUCKET}/{tmp_path.name}"

    def rows(key: Key) -> list[Any]:
        options = {**seaweed_server.options_of(key), "read.inline.maxRows": inline}
        given = {f"spark.indextables.{name}": value for name, value in options.items()}
        table = spark.read.format("indextables").options(**given).load(url)
        return sorted(row.id for row in table.where("id >= 1").collect())

    data = [{"id": n, "t": f"word{n}"} for n in range(3)]
    indextables.write(url, data, options=seaweed_server.options_of(WRITER))
    assert rows(WRITER) == [1, 2]
    for key in (LISTER, STRANGER):
        with pytest.raises(Exception, match="the store refused the credentials") as caught:
            rows(key)
        assert key.secret not in str(caught.value)
    assert rows(READER) == [1, 2]
    assert rows(WRITER) == [1, 2]
