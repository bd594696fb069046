"""The adapters' suites against real servers of S3, and against every other implementation of DynamoDB that can be had."""
