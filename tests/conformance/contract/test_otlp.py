"""The official exporters of OpenTelemetry, unmodified, send to streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind

from tests.conformance.contract.client import JSON, Api, Stream, expect, succeeded

RESOURCE = Resource.create({"service.name": "shop", "service.version": "7"})


Endpoint = Callable[[Stream, str], str]


@pytest.fixture
def origin(api: Api) -> Iterator[str]:
    """Yields the URL of a server for exporters, which open connections: what they send is passed on to the server under
    test, which may be in this process.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = api.request("POST", self.path, dict(self.headers), body)
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers["content-type"])
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def endpoint(origin: str) -> Endpoint:
    """Returns the function from a stream and a signal to the URL where the stream takes it."""
    return lambda stream, signal: f"{origin}{stream.path}/_otlp/v1/{signal}"


@pytest.fixture
def traces(api: Api) -> Stream:
    stream = api.stream(prefix="team/traces")
    expect(stream.set_profile("otel-traces"), 200)
    return stream


@pytest.fixture
def logs(api: Api) -> Stream:
    stream = api.stream(prefix="team/logs")
    expect(stream.set_profile("evlog"), 200)
    return stream


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_the_exporter_of_spans_fills_a_stream(traces: Stream, endpoint: Endpoint, compression: Compression) -> None:
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=endpoint(traces, "traces"), compression=compression)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("shop", "1.0")
    with tracer.start_as_current_span("GET /orders", kind=SpanKind.SERVER) as server:
        server.set_attributes({"http.request.method": "GET", "request.id": "r-1", "http.response.status_code": 500})
        with pytest.raises(ZeroDivisionError), tracer.start_as_current_span("compute"):
            _ = 1 // 0
    assert provider.force_flush()
    provider.shutdown()
    context = server.get_span_context()
    inner, outer = traces.records()
    assert {span["traceId"] for span in (inner, outer)} == {f"{context.trace_id:032x}"}
    assert (inner["parentSpanId"], outer["parentSpanId"]) == (outer["spanId"], None)
    assert (outer["service"], outer["version"], outer["kind"], outer["requestId"]) == ("shop", "7", "server", "r-1")
    assert (inner["status"]["code"], inner["error"]["type"]) == ("error", "ZeroDivisionError")
    hits = expect(traces.at("GET", "/_search?q=kind:server+status:500"), 200).json()
    assert [hit["source"]["spanId"] for hit in hits["hits"]] == [outer["spanId"]]


def test_the_exporter_of_logs_fills_a_stream_of_events(logs: Stream, endpoint: Endpoint) -> None:
    provider = LoggerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(endpoint=endpoint(logs, "logs"))))
    attributes = {"request.id": "r-1", "http.request.header.cookie": "hidden"}
    record = LogRecord(severity_number=SeverityNumber.ERROR, body="order 7 failed", attributes=attributes)
    provider.get_logger("shop.orders").emit(record)
    provider.shutdown()
    (event,) = logs.records()
    assert (event["level"], event["message"], event["service"]) == ("error", "order 7 failed", "shop")
    assert (event["requestId"], event["version"], event["context"]["scope"]["name"]) == ("r-1", "7", "shop.orders")
    assert "hidden" not in str(event)


@pytest.mark.parametrize("is_named", [True, False])
def test_the_server_alone_is_enough(
    api: Api, traces: Stream, logs: Stream, origin: str, is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", origin)
    if is_named:
        names = f"Stream-Traces={quote(traces.name, safe='')},Stream-Logs={quote(logs.name, safe='')}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", names)
    else:
        traces, logs = Stream(api, "otel-traces"), Stream(api, "otel-logs")
        for stream, kind in ((traces, "otel-traces"), (logs, "evlog")):
            succeeded(stream.put(JSON))
            expect(stream.set_profile(kind), 200)
    (spans_before, events_before) = (len(traces.records()), len(logs.records()))
    tracer = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    tracer.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    logger = LoggerProvider(resource=RESOURCE, shutdown_on_exit=False)
    logger.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter()))
    with tracer.get_tracer("shop").start_as_current_span("GET /orders") as span:
        logger.get_logger("shop").emit(LogRecord(body="order 7", severity_number=SeverityNumber.INFO))
    tracer.shutdown()
    logger.shutdown()
    assert [one["spanId"] for one in traces.records()[spans_before:]] == [f"{span.get_span_context().span_id:016x}"]
    assert [one["message"] for one in logs.records()[events_before:]] == ["order 7"]


def test_the_exporter_gives_up_what_is_refused(api: Api, traces: Stream, endpoint: Endpoint) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    with provider.get_tracer("t").start_as_current_span("x") as span:
        pass
    exporter = OTLPSpanExporter(endpoint=endpoint(api.unused(), "traces"))
    assert exporter.export([span]) is SpanExportResult.FAILURE
    exporter = OTLPSpanExporter(endpoint=endpoint(traces, "traces"))
    assert exporter.export([span]) is SpanExportResult.SUCCESS
    assert [one["name"] for one in traces.records()] == ["x"]
