"""What EMR Serverless is asked to run: pure, so that each submission is a golden file.

The settings name the code, each deployment its own; the job's whole task is the input object that its arguments name. The
client token is the job's id: a start that is sent again starts nothing new.
"""

from __future__ import annotations

from typing import Any

from headrace.objects import keys
from headrace.settings import Settings

TIMEOUT_MINUTES = 60  # then EMR Serverless ends the run
_PYTHON = "./environment/bin/python"

_SPARK = {
    "spark.driver.cores": "2",
    "spark.driver.memory": "4g",
    "spark.executor.cores": "4",
    "spark.executor.memory": "8g",
    "spark.executor.memoryOverheadFactor": "0.4",  # Python workers live beside the JVM
    "spark.dynamicAllocation.maxExecutors": "16",
    "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": _PYTHON,
    "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": _PYTHON,
    "spark.executorEnv.PYSPARK_PYTHON": _PYTHON,
}


def submission(job_id: str, settings: Settings) -> dict[str, Any]:
    """Arguments of `StartJobRun` for a job whose input stands in the bucket."""
    spark = {
        "spark.archives": f"{settings.spark_environment}#environment",
        "spark.submit.pyFiles": settings.spark_packages,
        **_SPARK,
    }
    return {
        "applicationId": settings.spark_application,
        "clientToken": job_id,
        "executionRoleArn": settings.spark_role,
        "name": f"headrace-index-{job_id}",
        "executionTimeoutMinutes": TIMEOUT_MINUTES,
        "jobDriver": {
            "sparkSubmit": {
                "entryPoint": settings.spark_entry_point,
                "entryPointArguments": ["--bucket", settings.bucket, "--input", keys.job_input(job_id)],
                "sparkSubmitParameters": " ".join(f"--conf {name}={value}" for name, value in spark.items()),
            }
        },
    }
