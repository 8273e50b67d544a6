"""Tools of the planted defects: what is wrong with one is said beside it."""

import functools


def search(query: str) -> str:
    """Searches the handbook."""
    return query


def lookup(key: str) -> str:
    """Looks an order up by its number."""
    return key


def undocumented(query: str) -> str:  # no docstring
    return query


def send_mail(text: str) -> None:  # no result
    """Sends a mail."""
    print(text)


def stub(query: str) -> str:  # no result
    """Will search."""


def inner_return(query: str) -> str:  # the only return is that of another function
    """Searches with a helper."""

    def helper() -> str:
        return query

    helper()


def empty_returns(query: str) -> str:  # leaves early, and without a value
    """Searches now and then."""
    if query:
        return
    return None


def untyped(thing) -> str:  # nothing says what to fill in
    """Finds what is asked for."""
    return str(thing)


def untyped_but_told(thing) -> str:
    """Finds it. thing: the number of an order."""
    return str(thing)


def optional_untyped(query: str, limit=3) -> str:
    """Searches; the second argument can be left out."""
    return query * limit


def by_position(query: str, /) -> str:
    """Searches."""
    return query


def sometimes(query: str) -> str | None:
    """Finds it, or nothing."""
    if query:
        return query
    return None


def refuses(query: str) -> str:
    """Is not there yet: the model is told so by the error."""
    raise NotImplementedError


@functools.lru_cache
def cached_undocumented(query: str) -> str:  # no docstring
    return query


def decorated(function):
    """A decorator that may give a docstring and a result."""
    function.__doc__ = "Searches."
    return function


@decorated
def other_docstring(query):
    pass
