"""The tables as an optimizer of PyTorch."""

import torch


class TablesOptimizer(torch.optim.Optimizer):
    """`EmbeddingCollection.optimizer()`: a param group for each table, with its "name" and "lr",
    which learning rate schedulers change. Setting `table.optimizer.lr` sets that of the group. The
    formulas are those of the tables' optimizers.

    With update="step", `step` updates the rows and `zero_grad` drops their gradients. With
    update="backward", both do nothing.
    """

    # A GradScaler then calls `step` even if it has found an infinity, with the attributes
    # `grad_scale` and `found_inf`, as for PyTorch's own fused optimizers.
    _step_supports_amp_scaling = True

    def __init__(self, tables, updates):
        self._tables, self._updates = tables, updates
        groups = []
        for table in tables:
            # PyTorch wants a parameter in each group.
            parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float32, device="cpu"))
            groups.append({"params": [parameter], "name": table.name, "lr": table.optimizer.lr})
        if hasattr(updates, "probe"):
            groups[0]["params"] = [updates.probe]
        super().__init__(groups, {})
        for table in tables:
            table.optimizer.tell_lr(self, table.name)

    def rates(self):
        """{table: its learning rate}."""
        return {group["name"]: group["lr"] for group in self.param_groups}

    def set_rate(self, name, rate):
        for group in self.param_groups:
            if group["name"] == name:
                group["lr"] = rate

    def add_param_group(self, param_group):
        if len(self.param_groups) == len(self._tables):
            raise ValueError("the optimizer of an EmbeddingCollection has its tables only; give "
                             "other parameters to an optimizer of their own")
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict):
        names = [group.get("name") for group in state_dict["param_groups"]]
        own = [group["name"] for group in self.param_groups]
        if names != own:
            raise ValueError(f"load_state_dict: the state is of the tables {names}, but here are "
                             f"{own}")
        super().load_state_dict(state_dict)

    @torch.compiler.disable
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scaler = hasattr(self, "grad_scale")
        try:
            self._updates.step(scaler)
        except Exception:
            if scaler:  # the GradScaler removes them from an optimizer that has made its step
                del self.grad_scale, self.found_inf
            raise
        return loss

    @torch.compiler.disable
    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none)
        self._updates.drop()
