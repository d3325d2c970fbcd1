"""What `state_dict` of a collection has instead of its rows: which rows the tables had.

Rows are too many for a state dict. `save` and `load` write and read them. So that a state is never
loaded beside other rows, it names them: by the run that trained them, and the number of its steps.
"""

_FORMAT = 1


def extra_state(engine):
    """A plain value, which torch.load(weights_only=True) reads."""
    return {"format": _FORMAT, "run": engine.run, "steps": engine.steps,
            "rows": {name: shard.statistics()["rows"] for name, shard in engine.shards.items()},
            "saved": None if engine.saved is None else
            {"directory": engine.saved[0], "steps": engine.saved[1]["steps"]}}


def check_extra_state(engine, state):
    """Raises ValueError if the tables have other rows than those of the state."""
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise ValueError("load_state_dict: the state of the EmbeddingCollection is not of this "
                         f"version of hps: expected format {_FORMAT}")
    if sorted(state["rows"]) != sorted(engine.shards):
        raise ValueError(f"load_state_dict: the state is of the tables {sorted(state['rows'])}, "
                         f"but here are {sorted(engine.shards)}")
    has_rows = any(shard.statistics()["rows"] for shard in engine.shards.values())
    if not state["steps"] and not engine.steps and not has_rows:
        return  # neither has been trained
    named = (state["run"], state["steps"])
    if named == (engine.run, engine.steps):
        return
    if named == engine.loaded and engine.steps == state["steps"]:
        return
    saved = state["saved"]
    rows = sum(state["rows"].values())
    if saved is not None and saved["steps"] == state["steps"]:
        raise ValueError(
            f"load_state_dict: a state dict has no rows, and the tables here do not have the "
            f"{rows:,} rows of this one; call embed.load({saved['directory']!r}) first, where they "
            "were saved")
    raise ValueError(
        f"load_state_dict: a state dict has no rows, and the {rows:,} rows of this one were "
        f"{'never saved' if saved is None else 'trained on after their last save'}; save them at "
        "the same step, with embed.save(directory), and call embed.load(directory) before "
        "load_state_dict")
