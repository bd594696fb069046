"""OTLP/HTTP: what exporters of OpenTelemetry send to a stream.

routes      `/v1/traces`, `/v1/logs`, and the same below the path of a stream
export      the two forms of a request, protobuf and JSON, and of its answers
records     spans and logs as the records that the profiles `otel-traces` and `evlog` take
"""
