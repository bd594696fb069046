"""The DynamoDB tables, one module each: rows, guards, the port, and its adapters on DynamoDB and in memory."""
