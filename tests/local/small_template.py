"""A deployment in miniature: one table with a stream, queues, a bucket, and a function fed by all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FUNCTION = "Sealer"


def write_template(folder: Path, *, handler: str, bisect: bool = True, retries: int = 2) -> Path:
    """Writes the template into `folder` and returns its path."""
    path = folder / "template.json"
    path.write_text(json.dumps(template(handler=handler, bisect=bisect, retries=retries)))
    return path


def template(*, handler: str, bisect: bool = True, retries: int = 2) -> dict[str, Any]:
    """As CDK would synthesize it, with what the emulator must leave out."""
    return {
        "Resources": {
            "Key": {"Type": "AWS::KMS::Key", "Properties": {"KeyPolicy": {}}},
            "Wal": {
                "Type": "AWS::DynamoDB::Table",
                "Properties": {
                    "AttributeDefinitions": [
                        {"AttributeName": "log_id", "AttributeType": "S"},
                        {"AttributeName": "slot", "AttributeType": "N"},
                    ],
                    "KeySchema": [
                        {"AttributeName": "log_id", "KeyType": "HASH"},
                        {"AttributeName": "slot", "KeyType": "RANGE"},
                    ],
                    "BillingMode": "PAY_PER_REQUEST",
                    "SSESpecification": {"KMSMasterKeyId": {"Fn::GetAtt": ["Key", "Arn"]}, "SSEEnabled": True},
                    "StreamSpecification": {"StreamViewType": "NEW_IMAGE"},
                },
            },
            "Bucket": {
                "Type": "AWS::S3::Bucket",
                "Properties": {
                    "VersioningConfiguration": {"Status": "Enabled"},
                    "NotificationConfiguration": {
                        "QueueConfigurations": [
                            {
                                "Event": "s3:ObjectCreated:*",
                                "Queue": {"Fn::GetAtt": ["Notified", "Arn"]},
                                "Filter": {
                                    "S3Key": {
                                        "Rules": [
                                            {"Name": "prefix", "Value": "logs/"},
                                            {"Name": "suffix", "Value": ".json.zst"},
                                        ]
                                    }
                                },
                            }
                        ]
                    },
                },
            },
            "Notified": {"Type": "AWS::SQS::Queue", "Properties": {}},
            "Spark": {"Type": "AWS::EMRServerless::Application", "Properties": {"Type": "SPARK"}},
            "JobState": {
                "Type": "AWS::Events::Rule",
                "Properties": {
                    "EventPattern": {
                        "source": ["aws.emr-serverless"],
                        "detail": {"applicationId": [{"Fn::GetAtt": ["Spark", "ApplicationId"]}]},
                    },
                    "Targets": [
                        {
                            "Arn": {"Fn::GetAtt": [FUNCTION, "Arn"]},
                            "Id": "0",
                            "RetryPolicy": {"MaximumRetryAttempts": 1},
                        }
                    ],
                },
            },
            "DeadLetters": {"Type": "AWS::SQS::Queue", "Properties": {}},
            "Delay": {
                "Type": "AWS::SQS::Queue",
                "Properties": {
                    "VisibilityTimeout": 1,
                    "RedrivePolicy": {
                        "deadLetterTargetArn": {"Fn::GetAtt": ["DeadLetters", "Arn"]},
                        "maxReceiveCount": 3,
                    },
                },
            },
            FUNCTION: {
                "Type": "AWS::Lambda::Function",
                "Properties": {
                    "Handler": handler,
                    "Timeout": 30,
                    "Environment": {
                        "Variables": {
                            "HEADRACE_WAL_TABLE": {"Ref": "Wal"},
                            "HEADRACE_SECRET": {"Ref": "Key"},
                            "HEADRACE_SEAL_RECORDS": "7",
                        }
                    },
                },
            },
            "Live": {
                "Type": "AWS::Lambda::Alias",
                "Properties": {"FunctionName": {"Ref": FUNCTION}, "FunctionVersion": "1", "Name": "live"},
            },
            "StreamMapping": {
                "Type": "AWS::Lambda::EventSourceMapping",
                "Properties": {
                    "FunctionName": {"Ref": "Live"},
                    "EventSourceArn": {"Fn::GetAtt": ["Wal", "StreamArn"]},
                    "BatchSize": 50,
                    "BisectBatchOnFunctionError": bisect,
                    "MaximumRetryAttempts": retries,
                    "FilterCriteria": {"Filters": [{"Pattern": '{"eventName":["INSERT"]}'}]},
                    "DestinationConfig": {"OnFailure": {"Destination": {"Fn::GetAtt": ["DeadLetters", "Arn"]}}},
                },
            },
            "QueueMapping": {
                "Type": "AWS::Lambda::EventSourceMapping",
                "Properties": {
                    "FunctionName": {"Fn::GetAtt": [FUNCTION, "Arn"]},
                    "EventSourceArn": {"Fn::GetAtt": ["Delay", "Arn"]},
                    "BatchSize": 10,
                    "FunctionResponseTypes": ["ReportBatchItemFailures"],
                },
            },
            "Sweep": {
                "Type": "AWS::Events::Rule",
                "Properties": {
                    "ScheduleExpression": "rate(1 day)",
                    "Targets": [{"Arn": {"Fn::GetAtt": [FUNCTION, "Arn"]}, "Id": "0"}],
                },
            },
        },
        "Outputs": {
            "WalTableName": {"Value": {"Ref": "Wal"}},
            "WalStreamArn": {"Value": {"Fn::GetAtt": ["Wal", "StreamArn"]}},
            "BucketName": {"Value": {"Ref": "Bucket"}},
            "DelayQueueUrl": {"Value": {"Ref": "Delay"}},
            "NotifiedQueueUrl": {"Value": {"Ref": "Notified"}},
            "DeadLetterQueueUrl": {"Value": {"Ref": "DeadLetters"}},
            "KeyArn": {"Value": {"Fn::GetAtt": ["Key", "Arn"]}},
        },
    }
