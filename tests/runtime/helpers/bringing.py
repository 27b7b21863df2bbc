"""Many crashes at once: each brought to its passage in a conversation, or a family, of its own."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

AT_A_TIME = 8


@dataclass(frozen=True)
class Brought[Crash, Place]:
    """What was to be brought to its passage, and what kept one from getting there."""

    places: Mapping[Crash, Place]
    problems: Mapping[Crash, BaseException | None]

    def there(self, crash: Crash) -> Place:
        """Return what stands at its passage; one that does not fails its own test alone."""
        problem = self.problems[crash]
        if problem is not None:
            raise problem
        return self.places[crash]


def bring_all[Crash, Place](
    bring_to: Callable[[Place, Crash, str], None],
    places: Mapping[Crash, Place],
    action: str,
    at_a_time: int = AT_A_TIME,
) -> Brought[Crash, Place]:
    """Bring each to its passage, some at a time."""
    with ThreadPoolExecutor(at_a_time) as threads:
        begun = {
            crash: threads.submit(bring_to, place, crash, action) for crash, place in places.items()
        }
    return Brought(places, {crash: done.exception() for crash, done in begun.items()})
