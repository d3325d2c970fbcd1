"""Work that all ranks do at once, and that all must know to have failed."""

import errno


def together(engine, work, what, still=""):
    """The results of `work` on all ranks. An error of one rank is raised on all: as OSError where
    it is one, else as RuntimeError. The message: `what` (why), `still`."""
    result = error = None
    try:
        result = work()
    except Exception as found:  # the others wait for this rank, whatever it is
        error = found
    told = None if error is None else (f"{type(error).__name__}: {error}", _number_of(error))
    outcomes = engine.gather((result, told))
    failed = [(rank, *told) for rank, (_, told) in enumerate(outcomes) if told is not None]
    if not failed:
        return [outcome for outcome, _ in outcomes]
    text = f"{what} ({'; '.join(f'rank {rank}: {why}' for rank, why, _ in failed)}){still}"
    number = failed[0][2]
    if all(found is not None for _, _, found in failed):
        raise OSError(number, text) from error
    raise RuntimeError(text) from error


def _number_of(error):
    """Of an OSError; None: it is another error."""
    return (error.errno or errno.EIO) if isinstance(error, OSError) else None


def agreed(engine, work, what):
    """The result of this rank's `work`. Its own error is raised as it is; an error of another rank
    as ValueError, with the message `what` (why)."""
    result = error = None
    try:
        result = work()
    except Exception as found:  # the others wait for this rank, whatever it is
        error = found
    told = engine.gather(None if error is None else f"{type(error).__name__}: {error}")
    if error is not None:
        raise error
    failed = [f"rank {rank}: {why}" for rank, why in enumerate(told) if why is not None]
    if failed:
        raise ValueError(f"{what} ({'; '.join(failed)})")
    return result
