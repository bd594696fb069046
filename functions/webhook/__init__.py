"""The function that posts webhooks. It may call no AWS service: to deceive it gains nothing."""
