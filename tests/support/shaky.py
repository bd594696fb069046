"""An object store in memory that fails as told."""

from __future__ import annotations

from headrace.errors import StoreThrottled, StoreTimeout
from headrace.objects.memory import MemoryObjects


class ShakyObjects(MemoryObjects):
    """Fails as told: each call takes the next word of its script ("" or no word: works)."""

    def __init__(self) -> None:
        super().__init__()
        self.creates: list[str] = []
        self.reads: list[str] = []
        self.gets: list[str] = []

    def create(self, key: str, data: bytes) -> bool:
        word = self.creates.pop(0) if self.creates else ""
        if word == "throttled":
            raise StoreThrottled(key)
        if word == "lost before":
            raise StoreTimeout(key)
        made = super().create(key, data)
        if word == "lost after":
            raise StoreTimeout(key)
        return made

    def get(self, key: str) -> bytes:
        self.gets.append(key)
        word = self.reads.pop(0) if self.reads else ""
        if word:
            raise StoreThrottled(key) if word == "throttled" else StoreTimeout(key)
        return super().get(key)
