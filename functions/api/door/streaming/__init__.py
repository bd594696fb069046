"""The streaming door: the application behind a Function URL whose invoke mode is RESPONSE_STREAM.

The client receives at once what the application sends, so an SSE response stays open and an answer may have 200 MB.
Lambda's own Python runtime client can't do that: it returns a result when the handler is done. Other runtime clients
may stream (developer guide, "Building a custom runtime" and "Response streaming"). This package is such a client; it
needs only the standard library.

Lambda starts it with the script `bootstrap`, which `AWS_LAMBDA_EXEC_WRAPPER` names, instead of its own client. So
runtime, artifact and patches stay those of the managed python3.13; a custom runtime would have to bring them along. The
AWS Lambda Web Adapter, a layer, does the same for any HTTP server, at the price of a server inside the function and a
binary of another maker.
"""
