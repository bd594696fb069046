"""The guard by which a commit gives a name its log: it writes the row of the catalog."""

from __future__ import annotations

from headrace.tables.catalog import TABLE, Row, row_item
from headrace.tables.items import Guard, Member, MemoryTables, Names, Refusal, s


class PutRow(Guard, frozen=True):
    """A guard that writes the catalog row of a name, if the name's current log is `replaces` (None: if there is no
    row).
    """

    row: Row
    replaces: str | None

    def __post_init__(self) -> None:
        """Refuses the row of a companion, which would replace that of its main log."""
        assert not self.row.config.role, "a row stands for a main log"

    def member(self, names: Names) -> Member:
        """Returns a conditional put of the row, as a member of a transaction."""
        put: Member = {"TableName": names[TABLE], "Item": row_item(self.row)}
        if self.replaces is None:
            put["ConditionExpression"] = "attribute_not_exists(log_id)"
        else:
            put["ConditionExpression"] = "log_id = :replaces"
            put["ExpressionAttributeValues"] = {":replaces": s(self.replaces)}
        return {"Put": put}

    def check(self, tables: MemoryTables) -> Refusal | None:
        """Returns a refusal unless the name's current log is the one to replace; None if it is."""
        current = tables[TABLE].rows.get((self.row.surface, self.row.name))
        log_id = current.log_id if current is not None else None
        return None if log_id == self.replaces else Refusal()

    def apply(self, tables: MemoryTables) -> None:
        """Writes the row to the table in memory."""
        tables[TABLE].rows[self.row.surface, self.row.name] = self.row
