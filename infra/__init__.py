"""The CDK app. Its runtime, jsii, greets Node 20 with a banner of ten lines; `./run synth` says it in one."""

import os

# Before jsii starts Node, which reads it.
os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "1")
