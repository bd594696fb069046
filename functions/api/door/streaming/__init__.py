"""The streaming door: the application behind a Function URL whose invoke mode is RESPONSE_STREAM.

What the application sends reaches the client at once, so an SSE response stays open and an answer may have 200 MB. Lambda's
own Python client can't do that: it returns a result when the handler is done. Lambda lets other runtime clients stream,
though, and says how (developer guide, "Building a custom runtime" and "Response streaming"). This is one, of the standard
library alone.

`bootstrap` is the way in: `AWS_LAMBDA_EXEC_WRAPPER` names it, so Lambda has it start the process, where it would else
start its own client. Thus runtime, artifact and patches stay those of the managed python3.13; a custom runtime would have
to bring them along. The AWS Lambda Web Adapter, a layer, does the same for any HTTP server; it is the alternative if this
door should ever be in the way, at the price of a server inside the function and a binary of someone else's.
"""
