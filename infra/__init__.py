"""The CDK app. Its runtime, jsii, greets Node 20 with a banner of ten lines; docs/operations.md recommends Node 22."""

import os

# Before jsii starts Node, which reads it: a list of versions.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "20")
