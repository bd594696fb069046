"""Random schemas, documents of a schema, and lenses that have something to do with a schema. All from one `Random`."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from jsonschema_rs import Draft7Validator

from headrace.errors import InvalidRequest
from headrace.json import validate

NAMES = ("a", "b", "c", "xa", "x1")
TEXTS = ("", "a", "B", "1", "-20", "ab", "0001-01-01T00:00:00Z", "2026-02-28T23:59:59.999999999+14:00", "ßİ", "1e3")
NUMBERS = (0, 1, -1, 2, 3.0, 0.5, -7, 10, 2**53 + 1, 10**21, 1e300, 253402300799999, -62167219200001, 1e-7)
SCALARS = (*TEXTS, *NUMBERS, True, False, None)
PATTERNS = ("^x", "^[a-c]$", "1$", "^-?[0-9]+$")
TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")

_SCALAR_KEYWORDS = ("minimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "format")


class Schemas:
    """Draft-07 schemas, small ones, with every keyword that the validator checks."""

    def __init__(self, random: Random, *, refers: bool | None = None) -> None:
        self._random = random
        self._refers = random.random() < 0.25 if refers is None else refers

    def root(self) -> Any:
        """Returns a schema, usually of objects, with definitions if it refers to any."""
        schema = self.object(3) if self._random.random() < 0.85 else self.any(3)
        if self._refers and isinstance(schema, dict):
            if "$ref" in schema:  # its siblings would not count
                schema = {"allOf": [schema]}
            schema["definitions"] = {"d": self.object(1), "e": self.any(1)}
        return schema

    def any(self, depth: int) -> Any:
        random = self._random
        roll = random.random()
        if depth <= 0 or roll < 0.4:
            return self.scalar()
        if roll < 0.62:
            return self.object(depth)
        if roll < 0.78:
            return self.array(depth)
        if roll < 0.92:
            return self.combined(depth)
        return roll < 0.99

    def scalar(self) -> Any:
        random = self._random
        return random.choice(
            (
                lambda: {"type": "string"},
                lambda: {"type": "string", "enum": random.sample(TEXTS, random.randint(1, 3))},
                lambda: {"enum": random.sample(SCALARS, random.randint(1, 4))},
                lambda: {"const": random.choice((*SCALARS, {}, [], {"a": 1}, ["a"]))},
                lambda: {"type": "string", "minLength": random.randint(0, 2)},
                lambda: {"type": "string", "maxLength": random.randint(0, 30), "pattern": random.choice(PATTERNS)},
                lambda: {"type": "string", "format": "date-time"},
                lambda: {"type": "integer"},
                lambda: {"type": "number"},
                lambda: {"type": random.choice(("integer", "number")), "minimum": random.choice(NUMBERS)},
                lambda: {"type": "number", "exclusiveMaximum": random.choice(NUMBERS)},
                lambda: {"type": "integer", "multipleOf": random.choice((1, 2, 3, 0.5))},
                lambda: {"type": "boolean"},
                lambda: {"type": "null"},
                lambda: {"type": random.sample(TYPES, 2)},
                lambda: {"$ref": random.choice(("#/definitions/d", "#/definitions/e"))} if self._refers else True,
            )
        )()

    def object(self, depth: int) -> Any:
        random = self._random
        names = random.sample(NAMES, random.randint(0, 4))
        schema: dict[str, Any] = {"type": "object", "properties": {name: self.any(depth - 1) for name in names}}
        schema["required"] = [name for name in NAMES if random.random() < (0.8 if name in names else 0.05)]
        roll = random.random()
        if roll < 0.55:
            schema["additionalProperties"] = False
        elif roll < 0.65:
            schema["additionalProperties"] = self.any(depth - 1)
        if random.random() < 0.1:
            schema["patternProperties"] = {random.choice(PATTERNS): self.any(depth - 1)}
        if random.random() < 0.08:
            schema["propertyNames"] = random.choice(({"maxLength": 1}, {"enum": list(NAMES[:3])}, {"pattern": "a"}))
        if random.random() < 0.08:
            schema["minProperties"] = random.randint(1, 3)
        if random.random() < 0.08:
            schema["maxProperties"] = random.randint(1, 4)
        if random.random() < 0.06:
            schema["dependencies"] = {random.choice(NAMES): random.choice((["b"], self.any(depth - 1)))}
        if random.random() < 0.1:
            del schema["type"]
        return schema

    def array(self, depth: int) -> Any:
        random = self._random
        schema: dict[str, Any] = {"type": "array"}
        if random.random() < 0.25:
            schema["items"] = [self.any(depth - 1) for _ in range(random.randint(1, 2))]
            if random.random() < 0.5:
                schema["additionalItems"] = self.any(depth - 2)
        elif random.random() < 0.9:
            schema["items"] = self.any(depth - 1)
        if random.random() < 0.5:
            schema["minItems"] = random.randint(0, 2)
        if random.random() < 0.2:
            schema["maxItems"] = random.randint(0, 3)
        if random.random() < 0.1:
            schema["uniqueItems"] = True
        if random.random() < 0.1:
            schema["contains"] = self.scalar()
        return schema

    def combined(self, depth: int) -> Any:
        random = self._random
        keyword = random.choice(("anyOf", "oneOf", "allOf", "not", "if"))
        if keyword == "not":
            return {"not": self.any(depth - 2)}
        if keyword == "if":
            return {"if": self.any(depth - 1), "then": self.any(depth - 1), "else": self.any(depth - 1)}
        parts = [self.object(depth - 1) if random.random() < 0.6 else self.any(depth - 1) for _ in range(2)]
        return {keyword: parts, **(self.object(depth - 1) if random.random() < 0.3 else {})}


class Documents:
    """Documents of one schema: guessed along its keywords, kept if it accepts them."""

    def __init__(self, random: Random, schema: Any) -> None:
        self._random = random
        self._schema = schema
        self._definitions = schema.get("definitions", {}) if isinstance(schema, dict) else {}
        self._validator = validate.compile(schema)

    def some(self, count: int) -> list[Any]:
        """Returns at most `count` documents."""
        found = []
        for _ in range(count):
            document = self._guess(self._schema, 6)
            try:
                self._validator.check(document)
            except InvalidRequest:
                continue
            found.append(document)
        return found

    def _guess(self, schema: Any, depth: int) -> Any:
        random = self._random
        if not isinstance(schema, dict) or depth <= 0:
            return self._anything(2)
        if "$ref" in schema:
            return self._guess(self._definitions[schema["$ref"].rsplit("/", 1)[1]], depth - 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                rest = {name: value for name, value in schema.items() if name != keyword}
                return self._guess(merged(rest, random.choice(schema[keyword])), depth)
        if "allOf" in schema:
            rest = {name: value for name, value in schema.items() if name != "allOf"}
            for part in schema["allOf"]:
                rest = merged(rest, part)
            return self._guess(rest, depth)
        if "if" in schema:
            branch = random.choice(("then", "else"))
            rest = {name: value for name, value in schema.items() if name not in ("if", "then", "else")}
            return self._guess(merged(rest, schema[branch]), depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return random.choice(schema["enum"])
        types = schema.get("type", ["object"] if "properties" in schema else list(TYPES))
        kind = random.choice(types) if isinstance(types, list) else types
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        return self._scalar(kind, schema)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        random = self._random
        properties = schema.get("properties", {})
        names = [name for name in NAMES if name in schema.get("required", ()) or random.random() < 0.4]
        random.shuffle(names)
        additional = schema.get("additionalProperties", True)
        found = {}
        for name in names:
            wanted = properties.get(name, additional)
            if wanted is not False:
                found[name] = self._guess(wanted, depth - 1)
        return found

    def _array(self, schema: dict[str, Any], depth: int) -> list[Any]:
        random = self._random
        low = schema.get("minItems", 0)
        size = random.randint(low, max(low, schema.get("maxItems", 3)))
        items = schema.get("items", True)
        if isinstance(items, list):
            rest = schema.get("additionalItems", True)
            return [self._guess(items[at] if at < len(items) else rest, depth - 1) for at in range(size)]
        return [self._guess(items, depth - 1) for _ in range(size)]

    def _scalar(self, kind: str, schema: dict[str, Any]) -> Any:
        bounds = [schema[name] for name in ("minimum", "maximum", "exclusiveMaximum") if name in schema]
        pools: dict[str, tuple[Any, ...]] = {"boolean": (False, True), "null": (None,), "string": TEXTS}
        pool = pools.get(kind, (*NUMBERS, *bounds))
        known = {key: value for key, value in schema.items() if key in _SCALAR_KEYWORDS}
        accepts = Draft7Validator(known, validate_formats=True).is_valid
        return self._random.choice([value for value in pool if accepts(value)] or pool)

    def _anything(self, depth: int) -> Any:
        random = self._random
        roll = random.random()
        if depth <= 0 or roll < 0.6:
            return random.choice(SCALARS)
        if roll < 0.8:
            return {name: self._anything(depth - 1) for name in random.sample(NAMES, random.randint(0, 3))}
        return [self._anything(depth - 1) for _ in range(random.randint(0, 2))]


def merged(one: Any, other: Any) -> Any:
    """Roughly what both schemas say: a guess, which is checked later."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other if isinstance(other, dict) else one
    found = {**one, **other}
    found["required"] = [*one.get("required", ()), *other.get("required", ())]
    if "properties" in one or "properties" in other:
        mine, theirs = one.get("properties", {}), other.get("properties", {})
        found["properties"] = {
            **mine,
            **{name: merged(mine[name], wanted) if name in mine else wanted for name, wanted in theirs.items()},
        }
    return found


class Operations:
    """Lens operations whose paths mostly lead somewhere in the schema."""

    def __init__(self, random: Random, schema: Any) -> None:
        self._random = random
        self._definitions = schema.get("definitions", {}) if isinstance(schema, dict) else {}

    def one(self, schema: Any, depth: int = 2) -> dict[str, Any]:
        """Returns an operation; up to so many levels of `in` and `map` deep."""
        random = self._random
        kinds = ["rename", "copy", "add", "remove", "hoist", "plunge", "wrap", "head", "convert"]
        kind = random.choice([*kinds, "in", "map", "in", "map"] if depth else kinds)
        wanted = {"in": "object", "hoist": "object", "map": "array", "head": "array"}
        path, at = self._path(schema, wanted.get(kind))
        to = self._path(schema)[0] if random.random() < 0.4 else f"/{random.choice(NAMES)}"
        match kind:
            case "rename" | "copy":
                return {"op": kind, "from": path, "to": self._elsewhere(path, to)}
            case "add":
                default = random.choice((*SCALARS, {}, [], {"a": 1}))
                return {"op": "add", "path": to, "schema": True, "default": default}
            case "remove":
                return {"op": "remove", "path": path, "schema": True}
            case "hoist":
                names = self._names(at)
                name = random.choice(names) if names and random.random() < 0.9 else random.choice(NAMES)
                return {"op": "hoist", "host": path, "name": name, "to": to, **self._coin("removeFromHost")}
            case "plunge":
                coins = {**self._coin("createHost"), **self._coin("removeFromSource")}
                host = to if random.random() < 0.5 else self._path(schema, "object")[0]
                return {
                    "op": "plunge",
                    "from": path,
                    "host": self._elsewhere(path, host),
                    "name": random.choice(NAMES),
                    **coins,
                }
            case "wrap":
                return {"op": "wrap", "path": path, "mode": "singleton"}
            case "head":
                return {"op": "head", "path": path}
            case "convert":
                return self._convert(path, at)
            case "in":
                return {
                    "op": "in",
                    "path": path,
                    "ops": [self.one(at, depth - 1) for _ in range(random.randint(1, 2))],
                }
            case _:
                items = at.get("items", True) if isinstance(at, dict) else True
                item = random.choice(items) if isinstance(items, list) and items else items
                return {
                    "op": "map",
                    "path": path,
                    "ops": [self.one(item, depth - 1) for _ in range(random.randint(1, 2))],
                }

    def _elsewhere(self, source: str, target: str) -> str:
        """Returns the target, or another one if it is within the source; that is refused before any proof."""
        if not f"{target}/".startswith(f"{source}/"):
            return target
        return self._random.choice([f"/{name}" for name in NAMES if not source.startswith(f"/{name}")])

    def _coin(self, name: str) -> dict[str, bool]:
        return {} if self._random.random() < 0.5 else {name: self._random.random() < 0.5}

    def _convert(self, path: str, at: Any) -> dict[str, Any]:
        random = self._random
        forms = [
            ("string", "string", {"builtin": "lowercase"}),
            ("string", "string", {"builtin": "uppercase"}),
            ("string", "integer", {"builtin": "string_to_int"}),
            ("integer", "string", {"builtin": "int_to_string"}),
            ("string", "integer", {"builtin": "rfc3339_to_unix_millis"}),
            (random.choice(("integer", "number")), "string", {"builtin": "unix_millis_to_rfc3339"}),
        ]
        named = at.get("type") if isinstance(at, dict) else None
        kind = named if isinstance(named, str) else random.choice(TYPES)
        fitting = [form for form in forms if form[0] == kind]
        if fitting and random.random() < 0.6:
            from_type, to_type, forward = random.choice(fitting)
        else:
            from_type, to_type = kind, "string"
            forward = {"map": {str(text): random.choice(TEXTS) for text in random.sample(SCALARS, 3)}}
            if random.random() < 0.8:
                forward["default"] = random.choice(TEXTS)
        backward = {"builtin": "lowercase"}
        return {
            "op": "convert",
            "path": path,
            "fromType": from_type,
            "toType": to_type,
            "forward": forward,
            "backward": backward,
        }

    def _names(self, schema: Any) -> list[str]:
        properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
        return list(properties)

    def _path(self, schema: Any, kind: str | None = None) -> tuple[str, Any]:
        """Returns a pointer, and what the schema says there as far as it is plain to see; of a type, if there is one."""
        random = self._random
        known = list(self._paths(schema, "", 4, random.random() < 0.9))
        fitting = [(path, at) for path, at in known if isinstance(at, dict) and at.get("type") == kind]
        if fitting and random.random() < 0.95:
            known = fitting
        deeper = [(path, at) for path, at in known if path]
        path, at = random.choice(deeper if deeper and random.random() < 0.97 else known)
        if random.random() < 0.05 or (not path and random.random() < 0.9):
            return f"{path}/{random.choice((*NAMES, '0'))}", True
        return path, at

    def _paths(self, schema: Any, path: str, depth: int, required: bool) -> Iterator[tuple[str, Any]]:
        """Pointers to what the schema names; if `required`, to what is always there."""
        while isinstance(schema, dict) and "$ref" in schema:
            schema = self._definitions[schema["$ref"].rsplit("/", 1)[1]]
            depth -= 1
            if depth < 0:
                return
        yield path, schema
        if isinstance(schema, dict) and depth > 0:
            for name in self._names(schema):
                if not required or name in schema.get("required", ()):
                    yield from self._paths(schema["properties"][name], f"{path}/{name}", depth - 1, required)
            if schema.get("minItems", 0) > 0:
                items = schema.get("items", True)
                first = items[0] if isinstance(items, list) else items
                yield from self._paths(first, f"{path}/0", depth - 1, required)
