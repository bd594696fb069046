"""Validates documents against a JSON schema of draft-07.

The only format that is checked is `date-time`; content encodings are not checked. `$schema` is ignored: every schema is
read as draft-07. References must lead to subschemas of the same schema.

Schemas come from clients, so their cost is bounded: patterns run in linear time, or, with look-around or back
references, for a bounded number of steps; `draft07` bounds the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRequest
from headrace.instants import is_date_time
from headrace.json import draft07, jsontext

if TYPE_CHECKING:
    from jsonschema_rs import Draft7Validator, ValidationError

MAX_ERRORS = 10  # named in one message
MAX_ERROR_CHARS = 200
_EXPLAINED = 100_000  # bound on (weight × size) of what is explained: some 0.3 s
_EXPLAINED_STACK = 2_000  # the same for (height × depth); a fifth of what overflows a stack of 8 MB
_SIZE_UNIT = 16  # characters of text that count as one value

_BACKTRACK_STEPS = 10_000
_PATTERN_BYTES = 1024 * 1024  # maximum size of a compiled pattern: the worst takes 0.15 ms per character
_PATTERN_CACHE_BYTES = 2 * 1024 * 1024


class Validator:
    """A compiled schema that checks documents.

    Args:
        compiled: the schema library's validator.
        cost: upper bound on the cost of evaluating the schema, from `draft07.measure`; if it is high for a document, its
            refusal does not name the errors.
    """

    def __init__(self, compiled: Draft7Validator, cost: draft07.Cost) -> None:
        self._compiled = compiled
        self._cost = cost

    def check(self, document: Any) -> None:
        """Checks a document as `jsontext.loads` returns it.

        Raises:
            InvalidRequest: the document does not match the schema. The message has up to `MAX_ERRORS` errors with their
                places, unless finding them would be expensive: for a large document, or a recursive schema with many
                alternatives.
        """
        if not self._compiled.is_valid(document):
            raise InvalidRequest(self._explain(document))

    def _explain(self, document: Any) -> str:
        if self._cost.ambiguous or not self._is_small(document):
            return "document does not match the schema"
        errors = list(self._compiled.iter_errors(document))
        texts = [_text(error, "document") for error in errors[:MAX_ERRORS]]
        if len(errors) > MAX_ERRORS:
            texts.append(f"and {len(errors) - MAX_ERRORS} more")
        return "; ".join(texts) or "document does not match the schema"

    def _is_small(self, document: Any) -> bool:
        size = depth = 0
        level = [document]
        while level:
            depth += 1
            below: list[Any] = []
            for value in level:
                size += 1
                if isinstance(value, str):
                    size += len(value) // _SIZE_UNIT
                elif isinstance(value, dict):
                    size += sum(map(len, value)) // _SIZE_UNIT
                    below.extend(value.values())
                elif isinstance(value, list):
                    below.extend(value)
            if size * self._cost.weight > _EXPLAINED:
                return False
            level = below
        frames = self._cost.height * (depth if self._cost.recursive else 1)
        return frames <= _EXPLAINED_STACK


def compile(schema: Any) -> Validator:
    """Compiles a schema. The first call takes some milliseconds to load the library.

    Raises:
        InvalidRequest: the schema is not one of draft-07, refers to something outside itself, or is too costly.
    """
    # The import takes 20 ms, which a process without schemas saves.
    from jsonschema_rs import Draft7Validator, FancyRegexOptions, ReferencingError, ValidationError

    if not isinstance(schema, (dict, bool)):
        raise InvalidRequest("schema must be an object or a boolean")
    own = jsontext.loads(jsontext.dumps(schema))
    graph = draft07.Graph(own)
    cost = draft07.measure(graph.root)
    for subschema in graph:
        _drop_what_is_not_checked(subschema.keywords)
    options = FancyRegexOptions(
        backtrack_limit=_BACKTRACK_STEPS, size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_CACHE_BYTES
    )
    try:
        compiled = Draft7Validator(
            own,
            formats={"date-time": is_date_time},
            validate_formats=True,
            offline=True,
            mask="value",
            pattern_options=options,
        )
    except ValidationError as exc:
        raise InvalidRequest(f"schema is not valid: {_text(exc, 'schema')}") from exc
    except (ReferencingError, ValueError) as exc:
        raise InvalidRequest(f"schema is not valid: {str(exc)[:MAX_ERROR_CHARS]}") from exc
    return Validator(compiled, cost)


def _drop_what_is_not_checked(keywords: dict[str, Any]) -> None:
    if isinstance(keywords.get("format"), str) and keywords["format"] != "date-time":
        del keywords["format"]
    for keyword in ("contentEncoding", "contentMediaType"):
        if isinstance(keywords.get(keyword), str):
            del keywords[keyword]


def _text(error: ValidationError, whole: str) -> str:
    where = jsontext.render_pointer(tuple(str(key) for key in error.instance_path))
    return f"{where or whole}: {error.message}"[:MAX_ERROR_CHARS]
