"""The wheel has a bridge for each version of Spark, and works beside one that is not the newest."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pyspark

from indextables.spark.compiler import MINORS, jar_name
from tests import ROOT

PROGRAM = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import indextables
home = sys.argv[1]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
builder = indextables.configure(builder.config("spark.sql.warehouse.dir", home + "/warehouse"))
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
rows = spark.range(10).selectExpr("id", "concat('row ', id) AS text")
rows.write.format("indextables").option("indexing.typemap.text", "text").save(home + "/t")
found = spark.read.format("indextables").load(home + "/t").where("text INDEXQUERY '7'").collect()
results = {
    "package": indextables.__file__,
    "jar": Path(builder._options["spark.jars"]).name,
    "version": spark.version,
    "found": [row.id for row in found],
}
spark.stop()
print(json.dumps(results))
"""


def test_the_wheel_has_a_bridge_for_each_version_and_configure_compiles_nothing(tmp_path: Path) -> None:
    build: list[str | Path] = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        tmp_path,
        ROOT,
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    jars = {name.rpartition("/")[2] for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".jar")}
    assert jars == {jar_name(minor) for minor in MINORS}

    venv.create(tmp_path / "fresh", with_pip=False)
    python = tmp_path / "fresh" / "bin" / "python"
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
    ]
    subprocess.run([*pip, "--disable-pip-version-check", wheel], check=True)
    (own,) = (tmp_path / "fresh" / "lib").glob("python3.*/site-packages")
    # Everything but indextables comes from the environment of this test; the checkout does not.
    packages = [path for path in sys.path if path.endswith("site-packages")]
    (own / "shared.pth").write_text("\n".join(packages))
    environment = {
        key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYSPARK_PYTHON"}
    }
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = subprocess.run(
        [python, "-W", "ignore", "-c", PROGRAM, tmp_path],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "compiling the bridge" not in run.stderr
    assert not list((tmp_path / "cache").rglob("*.jar"))
    results = json.loads(run.stdout.splitlines()[-1])
    assert results["package"].startswith(str(tmp_path))
    assert results["jar"] == jar_name(pyspark.__version__)
    assert results["version"] == pyspark.__version__
    assert results["found"] == [7]
