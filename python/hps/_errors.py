"""The exceptions of hps: one class for each code of an error."""


class Error(Exception):
    """An error of hps. `code` is its name, as gRPC and the command `hps` use it."""

    code = "UNKNOWN"


class CancelledError(Error):
    """The operation was cancelled."""

    code = "CANCELLED"


class UnknownError(Error):
    """An error without a code of its own."""


class InvalidArgumentError(Error, ValueError):
    """An argument is wrong; the message names it."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(Error, TimeoutError):
    """The time-out passed."""

    code = "DEADLINE_EXCEEDED"


class NotFoundError(Error, LookupError):
    """There is no such store, model, table or file."""

    code = "NOT_FOUND"


class AlreadyExistsError(Error):
    """The call would make a thing that exists already."""

    code = "ALREADY_EXISTS"


class PermissionDeniedError(Error):
    """The operating system or the server refuses it."""

    code = "PERMISSION_DENIED"


class ResourceExhaustedError(Error):
    """No memory, no disk, or more than a limit; a server is over its capacity."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(Error):
    """Not in this state: closed, read-only, of another process, of another format."""

    code = "FAILED_PRECONDITION"


class AbortedError(Error):
    """The operation was aborted."""

    code = "ABORTED"


class OutOfRangeError(Error):
    """A value is out of its range."""

    code = "OUT_OF_RANGE"


class UnimplementedError(Error, NotImplementedError):
    """This build does not have it."""

    code = "UNIMPLEMENTED"


class InternalError(Error):
    """A bug."""

    code = "INTERNAL"


class UnavailableError(Error):
    """Not now: another process has the store, or a model is not loaded."""

    code = "UNAVAILABLE"


class DataLossError(Error):
    """A file is damaged; the message names it."""

    code = "DATA_LOSS"


class UnauthenticatedError(Error):
    """The token is missing or wrong."""

    code = "UNAUTHENTICATED"


# By the number of the code, for the extension.
BY_CODE = {
    1: CancelledError, 2: UnknownError, 3: InvalidArgumentError, 4: DeadlineExceededError,
    5: NotFoundError, 6: AlreadyExistsError, 7: PermissionDeniedError, 8: ResourceExhaustedError,
    9: FailedPreconditionError, 10: AbortedError, 11: OutOfRangeError, 12: UnimplementedError,
    13: InternalError, 14: UnavailableError, 15: DataLossError, 16: UnauthenticatedError}

BY_NAME = {kind.code: kind for kind in BY_CODE.values()}

_CODES = {kind.code: number for number, kind in BY_CODE.items()}
_INTERNAL = 13


def error_as_tuple(error: BaseException) -> tuple[int, str]:
    """The number of its code, and its message, for the extension."""
    if isinstance(error, Error):
        return _CODES.get(error.code, _INTERNAL), str(error)
    return _INTERNAL, f"{type(error).__name__}: {error}"
