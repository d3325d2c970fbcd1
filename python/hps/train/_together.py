"""Work that all ranks do at the same time. If it fails on one rank, all ranks raise an error."""

import errno


def together(engine, work, what, still=""):
    """Calls `work` on every rank and returns the results of all ranks. If it fails on any rank,
    every rank raises: OSError if all errors are OSErrors (of a full disk, for example), else
    RuntimeError. The message is `what`, each rank's error in brackets, and `still`."""
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
    """The errno of an OSError; None for any other error."""
    return (error.errno or errno.EIO) if isinstance(error, OSError) else None


def agreed(engine, work, what):
    """Calls `work` on every rank and returns this rank's result. If `work` fails on this rank, its
    error is raised unchanged. If it fails on other ranks only, ValueError is raised; its message is
    `what` with their errors in brackets."""
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
