"""Builds the CloudWatch metrics that alarms and the dashboard use, one function per namespace."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

NAMESPACE = "Headrace"  # metrics that the functions write
PERIOD = Duration.minutes(5)
SERVICES = ("api", "sealer", "indexer", "relay", "folder")


class Own:
    """The metrics that the functions of one stack write."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack.stack_name

    def __call__(
        self, service: str, name: str, statistic: str = "Sum", label: str | None = None
    ) -> cloudwatch.Metric:
        """Returns a metric of one service, in periods of five minutes, as the other functions here do."""
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map={"service": service, "stack": self._stack},
            statistic=statistic,
            period=PERIOD,
            label=label,
        )


def of_function(function: lambda_.IFunction, name: str, statistic: str, label: str) -> cloudwatch.Metric:
    """Returns one of Lambda's metrics for a function, over all its versions."""
    return _aws("AWS/Lambda", name, {"FunctionName": function.function_name}, statistic, label)


def of_queue(queue: sqs.IQueue, name: str, label: str) -> cloudwatch.Metric:
    """Returns one of SQS's metrics for a queue, with statistic Maximum."""
    return _aws("AWS/SQS", name, {"QueueName": queue.queue_name}, "Maximum", label)


def of_table(table: dynamodb.ITable, name: str, label: str) -> cloudwatch.Metric:
    """Returns one of DynamoDB's metrics for a table, with statistic Sum."""
    return _aws("AWS/DynamoDB", name, {"TableName": table.table_name}, "Sum", label)


def of_door(api_id: str, name: str, statistic: str, label: str) -> cloudwatch.Metric:
    """Returns one of the HTTP API's metrics, over all its routes."""
    return _aws("AWS/ApiGateway", name, {"ApiId": api_id}, statistic, label)


def _aws(
    namespace: str, name: str, dimensions: dict[str, str], statistic: str, label: str | None
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dimensions,
        statistic=statistic,
        period=PERIOD,
        label=label,
    )
