"""A webhook leaves the deployment: by the relay, and the function that posts it, to a receiver of this machine."""

from __future__ import annotations

import base64
import json
import re
import time
import uuid

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.conformance.contract.client import Api
from tests.unit.webhook.receivers import answering, receiver

DONE = b'{"done":true}'
WAIT_S = 120


def test_a_webhook_is_signed_and_its_answer_acknowledges_what_it_told(warm_api: Api) -> None:
    name = f"hook-{uuid.uuid4().hex[:12]}"
    with (
        httpx.Client(timeout=60, trust_env=False, headers={"Authorization": f"Bearer {warm_api.key}"}) as http,
        receiver(answering("200 OK", DONE)) as running,
    ):
        root = f"{warm_api.url}/v1/stream"
        subscription = f"{root}/__ds/subscriptions/{name}"
        made = http.put(
            subscription,
            json={
                "type": "webhook",
                "pattern": f"{name}/*",
                "webhook": {"url": f"http://127.0.0.1:{running.port}/hook"},
            },
        )
        assert made.status_code == 201, made.text
        stream = f"{root}/{name}/1"
        created = http.put(stream, content=b"[1]", headers={"Content-Type": "application/json"})
        assert created.status_code == 201, created.text
        deadline = time.monotonic() + WAIT_S
        while [link["acked_offset"] for link in http.get(subscription).json()["streams"]] != [
            created.headers["Stream-Next-Offset"]
        ]:
            assert time.monotonic() < deadline, "nothing was acknowledged"
            time.sleep(0.5)  # what is awaited happens in other processes
        head, _, body = running.requests[0].partition(b"\r\n\r\n")
        found = re.search(rb"Webhook-Signature: t=(\d+),kid=(\S+),ed25519=(\S+)", head)
        assert found is not None
        keys = httpx.get(f"{root}/__ds/jwks.json", trust_env=False).json()["keys"]
        (key,) = (key for key in keys if key["kid"] == found[2].decode())
        public = Ed25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(key["x"] + "="))
        public.verify(base64.urlsafe_b64decode(found[3] + b"=="), found[1] + b"." + body)
        told = json.loads(body)
        assert told["callback_url"].endswith(f"/v1/stream/__ds/subscriptions/{name}/callback")
        assert made.json()["webhook"]["signing"]["kid"] == key["kid"]
