"""OTLP/HTTP: what exporters of OpenTelemetry send to a stream.

routes      `…/_otlp/v1/traces` and `…/_otlp/v1/logs`
export      the two forms of a request, protobuf and JSON, and of its answer
records     spans and logs as the records that the profiles `otel-traces` and `evlog` take
"""
