"""The templates of a stream for which keys are computed, as one document. Version 1.

A template says that clients wait for rows of an entity by one to three equality fields. It is active while it is used.
A late use reactivates it without a gap, because what it would have touched is computed from the log. The caller stores
the document and, if another writer was first, decides again on the stored one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headrace.objects import packed
from headrace.streams.profiles.numbers import Number
from headrace.streams.profiles.touch import keys
from headrace.streams.profiles.touch.config import TemplateLimits

VERSION = 1
MAX_FIELDS = 3
MAX_NAME = 512  # characters of an entity or field; keeps the document small
_NO_ID = 0  # an invalid declaration has no id
_MINUTE_MS = 60_000


class Declaration(NamedTuple):
    """A template as requested: fields with their encodings, in any order, not checked yet."""

    entity: str
    fields: tuple[tuple[str, str], ...]


class Template(msgspec.Struct, frozen=True, array_like=True):
    """A template in use.

    Attributes:
        id: hash of entity and field names.
        fields, encodings: sorted by field name.
        active_from: the offset before which records touch none of its keys.
        seen_ms: when it was last used, as stored.
        ttl_ms: it becomes inactive if it is not used for longer than this.
    """

    id: int
    entity: str
    fields: tuple[str, ...]
    encodings: tuple[str, ...]
    active_from: int
    seen_ms: int
    ttl_ms: int

    def is_active(self, now_ms: int) -> bool:
        """Returns whether its last stored use is at most `ttl_ms` ago."""
        return self.seen_ms + self.ttl_ms >= now_ms


class Activation(NamedTuple):
    """The result of one declaration: the template's id (0 for a malformed declaration) and, if it was denied, the reason
    `invalid` or `rate_limited`.
    """

    template_id: int
    denied: str | None = None


class TemplateBook(msgspec.Struct, frozen=True):
    """The stored document with all templates of a stream.

    Attributes:
        templates: at most one per id.
        tokens, filled_ms: number of activations left, and when that was computed; `filled_ms` is 0 if none was ever
            used.
    """

    version: int = VERSION
    templates: tuple[Template, ...] = ()
    tokens: float = 0
    filled_ms: int = 0

    def active(self, now_ms: int) -> tuple[Template, ...]:
        """Returns the active templates, for which keys are computed."""
        return tuple(template for template in self.templates if template.is_active(now_ms))

    def used(self, template_ids: Collection[int], now_ms: int, persist_interval_ms: Number) -> TemplateBook:
        """Returns the document with `now_ms` as the last use of these templates. Returns the same document if the stored
        use is recent enough: within the interval, and within half of the template's time to live.
        """
        templates = tuple(
            replace(template, seen_ms=now_ms)
            if template.id in template_ids
            and now_ms - template.seen_ms > min(persist_interval_ms, template.ttl_ms // 2)
            else template
            for template in self.templates
        )
        return self if templates == self.templates else replace(self, templates=templates)

    def activate(
        self,
        declarations: Iterable[Declaration],
        *,
        ttl_ms: int,
        limits: TemplateLimits,
        next_offset: int,
        now_ms: int,
    ) -> tuple[TemplateBook, tuple[Activation, ...]]:
        """Activates templates, or refreshes active ones; returns the new document, and the result of each declaration. A
        new template begins at `next_offset`, which must be the end of the log as read before this document is stored.

        A declaration is denied when it is invalid, when its template is active with other encodings, or when this
        minute's activations are used up. Above the limits, the least recently used other templates are dropped.
        """
        templates = {template.id: template for template in self.active(now_ms)}
        tokens = self._tokens(limits, now_ms)
        outcomes = []
        for declaration in declarations:
            fields = _canonical(declaration)
            if fields is None:
                outcomes.append(Activation(_NO_ID, "invalid"))
                continue
            names, encodings = tuple(name for name, _ in fields), tuple(encoding for _, encoding in fields)
            template_id = keys.template_id(declaration.entity, names)
            known = templates.get(template_id)
            if known is not None and (known.entity, known.fields, known.encodings) != (
                declaration.entity,
                names,
                encodings,
            ):
                outcomes.append(Activation(template_id, "invalid"))
                continue
            if known is None:
                if limits.activations_per_minute and tokens < 1:
                    outcomes.append(Activation(template_id, "rate_limited"))
                    continue
                tokens -= 1
                known = Template(template_id, declaration.entity, names, encodings, next_offset, now_ms, ttl_ms)
            templates[template_id] = replace(known, seen_ms=now_ms, ttl_ms=ttl_ms)
            outcomes.append(Activation(template_id))
        fresh = {outcome.template_id for outcome in outcomes if outcome.denied is None}
        kept = _within(templates.values(), fresh, limits)
        return replace(self, templates=kept, tokens=max(tokens, 0.0), filled_ms=now_ms), tuple(outcomes)

    def _tokens(self, limits: TemplateLimits, now_ms: int) -> float:
        """Returns the number of activations left: a bucket with one minute's activations that fills steadily; full if none
        was ever used.
        """
        most = float(limits.activations_per_minute)
        if not self.filled_ms:
            return most
        return min(most, self.tokens + max(0, now_ms - self.filled_ms) * most / _MINUTE_MS)


def by_entity(templates: Iterable[Template]) -> Mapping[str, tuple[Template, ...]]:
    """Returns the templates by the entity whose changes concern them."""
    found: dict[str, list[Template]] = {}
    for template in templates:
        found.setdefault(template.entity, []).append(template)
    return {entity: tuple(of_it) for entity, of_it in found.items()}


def dump(book: TemplateBook) -> bytes:
    """Encodes the document as JSON."""
    return msgspec.json.encode(book)


def load(data: bytes) -> TemplateBook:
    """Decodes a document from the bytes that `dump` returned.

    Raises:
        NewerFormat: a newer release wrote the document.
        Damaged: the bytes are no such document.
    """
    return packed.parse(data, TemplateBook, "touch templates")


def _canonical(declaration: Declaration) -> list[tuple[str, str]] | None:
    """Returns the fields sorted by name; None if they are no valid template."""
    fields = sorted(declaration.fields)
    names = {name for name, _ in fields}
    valid = (
        1 <= len(fields) <= MAX_FIELDS
        and len(names) == len(fields)
        and all(_is_name(name) for name in (declaration.entity, *names))
        and all(encoding in keys.ENCODINGS for _, encoding in fields)
    )
    return fields if valid else None


def _is_name(text: str) -> bool:
    return bool(text.strip()) and len(text) <= MAX_NAME


def _within(templates: Iterable[Template], fresh: Collection[int], limits: TemplateLimits) -> tuple[Template, ...]:
    """Returns the templates that stay within the limits, per entity and in total: first the fresh ones, then the last
    used. Keeps the given order.
    """
    given = tuple(templates)
    of_entity: Counter[str] = Counter()
    stay: set[int] = set()
    for template in sorted(given, key=lambda one: (one.id not in fresh, -one.seen_ms, one.id)):
        if of_entity[template.entity] < limits.per_entity and len(stay) < limits.per_stream:
            of_entity[template.entity] += 1
            stay.add(template.id)
    return tuple(template for template in given if template.id in stay)
