"""Plans how the clauses of a query are answered from one run: what must be fetched, and how the fetched data is
evaluated.

Each clause becomes a step. Everything that the steps of a query need is fetched in one round; then each step computes
its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import and_, or_
from typing import Any, NamedTuple

import numpy as np

from headrace.clock import check_deadline
from headrace.index import docsets, families, parts
from headrace.index.descriptors import Descriptor, FieldStats
from headrace.index.docsets import Docs, Mask, Rows, Sets
from headrace.index.families import column_name
from headrace.index.fetching import Routine, gather
from headrace.index.parts import Column
from headrace.index.postings import Int64s, Postings, TermRequest
from headrace.index.reading import RunReader
from headrace.query.language import canonical
from headrace.query.language.canonical import SearchConfig
from headrace.query.language.query import (
    And,
    Anywhere,
    Check,
    Compare,
    Contains,
    Equals,
    Has,
    Node,
    Not,
    Or,
    Prefix,
    Words,
)
from headrace.query.language.scoring import PHRASE_BONUS

_FEW_VALUES = 4096  # with more distinct values, or if most occur once, a term's postings are smaller than the column
_OFTEN = 4
_RARE = 8  # if at most one in so many records has the field, the postings of `has:` are smaller than the column


class Step(NamedTuple):
    """A clause, or a combination of clauses, with how it is answered in one run.

    Attributes:
        what: the clause as text, or `and`, `or`, `not`, `any of`.
        family: the family of the run (`kw`, `fts`, `col`) that answers it; empty for a combination, if the run's
            statistics are enough, or if the run can't answer it (then every record may match).
        parts: the combined steps.
        sets: computes the records that certainly match and those that may; call it after everything was fetched.
        scores: computes the scores of rows, as `headrace.query.language.scoring.score` does; exact only for rows that
            are not doubtful and not lossy in a text field.
    """

    what: str
    family: str
    parts: tuple[Step, ...]
    sets: Callable[[], Sets]
    scores: Callable[[Rows], Any]

    def doubtful(self, rows: Rows) -> Mask:
        """Returns a mask of the rows whose scores may be wrong, because the run can't decide whether a part that scores
        matches them.
        """
        doubt = np.zeros(len(rows), np.bool_)
        if self.scores is _worthless:
            return doubt
        for part in self.parts:
            doubt |= part.doubtful(rows)
        sure, maybe = self.sets()
        if sure is not maybe:
            doubt |= maybe.has(rows) & ~sure.has(rows)
        return doubt

    def explain(self) -> dict[str, Any]:
        """Returns the step as JSON, for `explain=true`."""
        shown: dict[str, Any] = {"clause": self.what}
        if self.family:
            shown["family"] = self.family
        if self.parts:
            shown["parts"] = [part.explain() for part in self.parts]
        return shown


class Steps:
    """A collection of everything that a query needs from a run, so that it can be fetched at once."""

    def __init__(
        self,
        descriptor: Descriptor,
        config: SearchConfig,
        chunks: tuple[int, int] | None = None,
        check: Check = check_deadline,
    ) -> None:
        """Creates an empty collection for one run. With `chunks`, phrases are only answered for records of these
        chunks. `check` is called before each clause and word is evaluated, and raises an error if the time is over.
        """
        self._chunks = chunks
        self._check = check
        self.first = descriptor.first_offset
        self.families: set[str] = set()
        self.columns: dict[str, Column] = {}
        self._size = descriptor.end_offset - descriptor.first_offset
        self._stats = descriptor.fields
        self._config = config
        self._requests: dict[TermRequest, int] = {}
        self._wanted_columns: dict[str, None] = {}
        self._postings: list[Postings] = []

    def fetch(self, reader: RunReader) -> Routine[None]:
        routines: list[Routine[Any]] = []
        if self._requests:
            routines.append(reader.postings(list(self._requests)))
        if self._wanted_columns:
            routines.append(reader.columns(list(self._wanted_columns)))
        found = yield from gather(routines)
        if self._requests:
            self._postings = found[0]
        if self._wanted_columns:
            self.columns = found[-1]

    def term(self, request: TermRequest) -> Callable[[], Postings]:
        """Adds a request for terms. Returns a function that gives the postings after the fetch."""
        number = self._requests.setdefault(request, len(self._requests))
        self.families.add(request.family)
        return lambda: self._postings[number]

    def want_column(self, field: str) -> Callable[[], Column] | None:
        """Adds a request for a field's column. Returns a function that gives it after the fetch; None if the run has no
        such column.
        """
        if not self._of(field).column:
            return None
        name = column_name(field, self._config.fields[field].kind)
        self._wanted_columns[name] = None
        self.families.add("col")
        return lambda: self.columns[name]

    def lossy(self, field: str) -> Callable[[], Docs]:
        """Adds a request for the records whose values of a field the run can't hold exactly, and returns a function that
        gives them after the fetch. Nothing is fetched if there are none.
        """
        if not self._of(field).lossy:
            return lambda: Docs.none(self._size)
        found = self.term(TermRequest("kw", families.lossy_term(field)))
        return lambda: self._docs(found().merged())

    def of(self, node: Node) -> Step:
        """Returns the step that answers a query, and adds the requests that it needs."""
        if isinstance(node, And | Or):
            return self._join(node)
        if isinstance(node, Not):
            return self._not(self.of(node.part))
        if isinstance(node, Has):
            return self._has(node)
        if isinstance(node, Equals):
            return self._equals(node)
        if isinstance(node, Compare):
            return self._compare(node)
        if isinstance(node, Prefix):
            return self._prefix(node)
        if isinstance(node, Words):
            return self._words(node)
        if isinstance(node, Contains):
            return self._contains(node)
        return self._anywhere(node)

    def _of(self, field: str) -> FieldStats:
        return self._stats.get(field, _ABSENT)

    def _docs(self, offsets: Int64s) -> Docs:
        return Docs.of(self._size, offsets - self.first)

    def _leaf(self, what: str, family: str, sets: Callable[[], Sets]) -> Step:
        return Step(what, family, (), self._once(sets), _worthless)

    def _once(self, sets: Callable[[], Sets]) -> Callable[[], Sets]:
        """Wraps `sets` in a function that checks the time and computes them at the first call, and returns the same
        result afterwards.
        """
        kept: list[Sets] = []

        def get() -> Sets:
            if not kept:
                self._check()
                kept.append(sets())
            return kept[0]

        return get

    def _known(self, what: str, docs: Docs) -> Step:
        """Returns a step whose matching records are known without a fetch."""
        return self._leaf(what, "", lambda: Sets(docs, docs))

    def _unknown(self, what: str) -> Step:
        """Returns a step for a clause that the run can't answer: every record may match."""
        return self._leaf(what, "", lambda: Sets(Docs.none(self._size), Docs.all(self._size)))

    def _exact(self, what: str, request: TermRequest) -> Step:
        """Returns a step that is answered by terms. They are exact for every record, also where a column can't hold the
        value.
        """
        found = self.term(request)

        def sets() -> Sets:
            docs = self._docs(found().merged())
            return Sets(docs, docs)

        return self._leaf(what, request.family, sets)

    def _by_column(self, what: str, field: str, rows: Callable[[Column], Any]) -> Step:
        """Returns a step that is answered by a column. Records whose values the column can't hold exactly only may
        match.
        """
        column, marked = self.want_column(field), self.lossy(field)
        assert column is not None, "asked before"

        def sets() -> Sets:
            found = column()
            holds = rows(found)
            if found.valid is not None:
                holds = holds & found.valid
            sure = Docs(self._size, mask=holds)
            return Sets(sure, sure | marked())

        return self._leaf(what, "col", sets)

    def _join(self, node: And | Or) -> Step:
        parts = tuple(map(self.of, node.parts))
        is_and = isinstance(node, And)

        def sets() -> Sets:
            joined = parts[0].sets()
            for part in parts[1:]:
                joined = joined.combine(part.sets(), and_ if is_and else or_)
            return joined

        once = self._once(sets)

        def scores(rows: Rows) -> Any:
            total = sum(part.scores(rows) for part in parts)
            return np.where(once().maybe.has(rows), total, 0.0)

        has_score = any(part.scores is not _worthless for part in parts)
        return Step("and" if is_and else "or", "", parts, once, scores if has_score else _worthless)

    def _not(self, part: Step) -> Step:
        def sets() -> Sets:
            sure, maybe = part.sets()
            others = ~maybe
            return Sets(others, others if sure is maybe else ~sure)

        return Step("not", "", (part,), self._once(sets), _worthless)

    def _has(self, clause: Has) -> Step:
        what, stats = f"has:{clause.field}", self._of(clause.field)
        if stats.present in (0, self._size):
            return self._known(what, Docs.all(self._size) if stats.present else Docs.none(self._size))
        is_text = self._config.fields[clause.field].kind == "text"
        if stats.column and not stats.lossy and not is_text and stats.present * _RARE > self._size:
            return self._by_column(what, clause.field, lambda column: np.ones(len(column.values), np.bool_))
        return self._exact(what, TermRequest("fts" if is_text else "kw", families.has_term(clause.field)))

    def _equals(self, clause: Equals) -> Step:
        assert not isinstance(clause.value, tuple), "text has no equality"
        what = f"{clause.field}:{canonical.text(clause.value)}"
        field, stats = self._config.fields[clause.field], self._of(clause.field)
        if not stats.present:
            return self._known(what, Docs.none(self._size))
        has_terms = field.exact or field.prefix
        if has_terms and (stats.lossy or not _is_cheap(stats)):
            return self._exact(what, TermRequest("kw", families.value_term(clause.field, clause.value)))
        if not stats.column:
            return self._unknown(what)
        return self._by_column(what, clause.field, parts.equal_to(clause.value))

    def _compare(self, clause: Compare) -> Step:
        assert not isinstance(clause.value, tuple | str), "only numbers, dates and truth values compare"
        what, stats = f"{clause.field}:{clause.operator}{canonical.text(clause.value)}", self._of(clause.field)
        if not stats.present:
            return self._known(what, Docs.none(self._size))
        if not stats.column:
            return self._unknown(what)
        return self._by_column(what, clause.field, parts.compared(clause.operator, clause.value))

    def _prefix(self, clause: Prefix) -> Step:
        what = f"{clause.field}:{clause.value}*"
        field, stats = self._config.fields[clause.field], self._of(clause.field)
        if not stats.present:
            return self._known(what, Docs.none(self._size))
        if not stats.lossy and _is_cheap(stats):
            return self._by_column(what, clause.field, lambda column: parts.beginning(column, clause.value))
        if not (field.exact or field.prefix):
            return self._unknown(what)
        low = families.prefix_term(clause.field, clause.value)
        return self._exact(what, TermRequest("kw", low, families.after(low)))

    def _contains(self, clause: Contains) -> Step:
        """Returns a step for a piece of text. Of a keyword with few values its dictionary tells; of a text, the words that
        the piece has, where they can't be within others. Any other record may match, and is looked at.
        """
        what = f"{clause.field} contains {clause.text}"
        field, stats = self._config.fields[clause.field], self._of(clause.field)
        if not stats.present:
            return self._known(what, Docs.none(self._size))
        if field.kind == "keyword" and not stats.lossy and _is_cheap(stats):
            return self._by_column(what, clause.field, lambda column: parts.containing(column, clause.text))
        words = _inner_words(clause) if field.kind == "text" else None
        if words is None:
            return self._unknown(what)
        step = self._words(words)
        return self._leaf(what, "fts", lambda: Sets(Docs.none(self._size), step.sets().maybe))

    def _words(self, clause: Words) -> Step:
        words = f'"{" ".join(clause.words)}"' if clause.phrase else " ".join(clause.words)
        what = f"{clause.field}:{words}{'*' if clause.prefix else ''}"
        if not self._of(clause.field).present:
            return self._known(what, Docs.none(self._size))
        requests = _word_requests(clause, self._chunks)
        found = [self.term(request) for request in requests]
        several = self.lossy(clause.field) if len(clause.words) > 1 else None

        def every() -> Docs:
            docs = self._docs(found[0]().merged())
            for one in found[1:]:
                self._check()
                docs = docs & self._docs(one().merged())
            return docs

        def sets() -> Sets:
            holds = self._phrase([one() for one in found]) if clause.phrase else every()
            marked = several() if several is not None else None
            if marked is None or marked.is_empty:
                return Sets(holds, holds)
            doubtful = every() & marked  # the words may be in several texts of the record
            return Sets(holds - doubtful, holds | doubtful)

        once = self._once(sets)
        bonus = PHRASE_BONUS * len(clause.words) if clause.phrase else 0

        def scores(rows: Rows) -> Any:
            total = np.full(len(rows), float(bonus))
            for request, times in Counter(requests).items():
                docs = np.sort(self.term(request)().docs) - self.first
                total += times * (np.searchsorted(docs, rows, "right") - np.searchsorted(docs, rows, "left"))
            return np.where(once().maybe.has(rows), total, 0.0)

        return Step(what, "fts", (), once, scores)

    def _phrase(self, found: Sequence[Postings]) -> Docs:
        """Returns the records in which the words of a phrase are next to each other, in order."""
        shared = np.ones(self._size, np.bool_)
        for one in found:
            self._check()
            holds = np.zeros(self._size, np.bool_)
            holds[one.docs - self.first] = True
            shared &= holds
        begins = sorted((self._begins(one, at, shared) for at, one in enumerate(found)), key=len)
        places = begins[0]
        for other in begins[1:]:
            places = places[docsets.are_among(places, other)]
        return Docs.of(self._size, docsets.drop_repeats(places >> 32))

    def _begins(self, found: Postings, at: int, shared: Any) -> Int64s:
        """Returns the places where a phrase would start if this is its word number `at`; record and place are packed in
        one number, ascending.

        Args:
            shared: a mask of the records that have all words of the phrase.
        """
        assert found.pos is not None, "positions were asked for"
        self._check()
        docs = found.docs - self.first
        is_wanted = shared[docs] & (found.pos >= at) if at else shared[docs]
        begins = (docs[is_wanted] << 32) + (found.pos[is_wanted].astype(np.int64) - at)
        return begins if len(found) < 2 else np.sort(begins)

    def _anywhere(self, clause: Anywhere) -> Step:
        steps = ((option, self.of(option)) for option in clause.options)
        parts = tuple(step if isinstance(option, Words) else _worth_one(step) for option, step in steps)

        def sets() -> Sets:
            joined = parts[0].sets()
            for part in parts[1:]:
                joined = joined.combine(part.sets(), or_)
            return joined

        def scores(rows: Rows) -> Any:
            best = np.zeros(len(rows))
            for part, boost in zip(parts, clause.boosts, strict=True):
                best = np.maximum(best, part.scores(rows) * boost)
            return best

        return Step("any of", "", parts, self._once(sets), scores)


_ABSENT = FieldStats(present=0, distinct=0)


def _is_cheap(stats: FieldStats) -> bool:
    """Returns whether a field's column is cheaper than postings for finding a single value."""
    return stats.column and stats.distinct <= _FEW_VALUES and stats.distinct * _OFTEN <= stats.present


def _inner_words(clause: Contains) -> Words | None:
    """Returns the condition that a text has the words of a piece of it: those with something else on both sides, and the
    last one as the beginning of a word. None if there is none; the first may be the end of a longer word.
    """
    found = list(canonical.find_words(clause.text))
    begun = [match for match in found if match.start() > 0]
    if not begun:
        return None
    is_open = begun[-1].end() == len(clause.text)
    return Words(clause.field, tuple(match[0] for match in begun), phrase=False, prefix=is_open)


def _worthless(rows: Rows) -> Any:
    return np.zeros(len(rows))


def _worth_one(step: Step) -> Step:
    """Returns the step with a score of one for each record that may match."""
    return step._replace(scores=lambda rows: step.sets().maybe.has(rows).astype(np.float64))


def _word_requests(clause: Words, chunks: tuple[int, int] | None) -> list[TermRequest]:
    """Returns a request for each word. For a phrase, it is limited to these chunks (of 65,536 offsets each), if given."""
    if not clause.phrase:
        chunks = None
    lows = [families.word_term(clause.field, word) for word in clause.words]
    requests = [TermRequest("fts", low, None, clause.phrase, chunks) for low in lows]
    if clause.prefix:
        requests[-1] = requests[-1]._replace(high=families.after(lows[-1]))
    return requests
