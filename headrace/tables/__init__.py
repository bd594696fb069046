"""The DynamoDB tables, one package each: its rows, its contract, its adapters."""
