"""The function that posts webhooks. It may call no AWS service: whoever deceives it has gained nothing."""
