"""The emulator: the whole deployment in one process tree on one machine. `headrace dev` starts it."""

COMMANDS = {"dev": ("local.dev:command", "Run the whole product on this machine.")}
