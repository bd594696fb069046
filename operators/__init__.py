"""Commands for operators. They call AWS directly, not a server, and need the extra `headrace[operators]`.

The client (`cli`) finds them through the entry point `operators` of the group `headrace.commands`.
"""

COMMANDS = {
    "verify": ("operators.verify:command", "Check that everything stored is intact and consistent."),
    "recover": ("operators.recover:command", "Rebuild lost tables from the bucket."),
    "doctor": ("operators.doctor.command:command", "Check a deployment's health and suggest fixes."),
    "cost": ("operators.cost.command:command", "Estimate the monthly cost here and elsewhere."),
    "key": ("operators.keys:command", "Create, list and revoke access keys."),
    "rotate-signing-key": ("operators.signing:rotate", "Add a key that signs webhooks; it takes over by itself."),
    "index rebuild": ("operators.index:rebuild", "Ask the indexer to build the runs of streams again."),
}
