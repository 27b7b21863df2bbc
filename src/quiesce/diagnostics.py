"""What an application's error says of itself, made so that it can be written down.

An exception may have no text, or one that raises, is no text, or holds half of a character; a group of them says
nothing of those that are in it. Whatever it is, it must settle its submission and strand no lane.
"""

from collections.abc import Iterator

TYPE_MAX = 100
WORDS_MAX = 2_000
GROUPED_MAX = 64
CAUSES_MAX = 8
_exceptions_of = BaseExceptionGroup.exceptions.__get__
"""Reads what a group was made of, whatever its class says that it holds."""
NOTHING_SAID = "(it has no text that could be written down)"


def storable(text: str, maximum: int = WORDS_MAX) -> str:
    """Return a text that has a UTF-8 form, cut at `maximum` characters; half a character is a question mark."""
    # What an application has made of these methods in a text of its own is not asked.
    return str.__getitem__(text, slice(maximum)).encode("utf-8", "replace").decode()


def type_of(error: BaseException) -> str:
    """Return the name of an error's type: its own `error_type` where it declares one."""
    try:
        declared = getattr(error, "error_type", None)
        name = declared if isinstance(declared, str) else type(error).__name__
        return storable(name, TYPE_MAX)
    except Exception:  # noqa: BLE001 - the code of the application runs in here, and may do anything
        return "Exception"


def words_of(error: BaseException, maximum: int = WORDS_MAX) -> str:
    """Return what an error says."""
    try:
        return storable(str(error), maximum)
    except Exception:  # noqa: BLE001 - the code of the application runs in here, and may do anything
        return NOTHING_SAID


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, as far back as is worth looking."""
    each: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if each is None:
            return
        yield each
        try:
            each = each.__cause__ or each.__context__
        except Exception:  # noqa: BLE001 - the code of the application runs in here, and may do anything
            return


def members_of(error: BaseException) -> list[BaseException]:
    """Return the errors that a group holds, however deep, in order; an error that is no group holds itself."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting and len(found) < GROUPED_MAX:
        each = waiting.pop(0)
        if isinstance(each, BaseExceptionGroup):
            waiting[:0] = _exceptions_of(each)
        else:
            found.append(each)
    return found
