"""Work that all ranks do at once, and that all must know to have failed."""


def together(engine, work, what, still=""):
    """The results of `work` on all ranks. An error of one rank is raised on all: as OSError where
    it is one, else as RuntimeError. The message: `what` (why), `still`."""
    result = error = None
    try:
        result = work()
    except Exception as found:  # the others wait for this rank, whatever it is
        error = found
    told = None if error is None else (f"{type(error).__name__}: {error}",
                                       isinstance(error, OSError))
    outcomes = engine.gather((result, told))
    failed = [(rank, *told) for rank, (_, told) in enumerate(outcomes) if told is not None]
    if not failed:
        return [outcome for outcome, _ in outcomes]
    text = f"{what} ({'; '.join(f'rank {rank}: {why}' for rank, why, _ in failed)}){still}"
    if all(is_os_error for _, _, is_os_error in failed):
        raise OSError(getattr(error, "errno", None), text) from error
    raise RuntimeError(text) from error
