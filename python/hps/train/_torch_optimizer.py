"""The tables as an optimizer of PyTorch."""

import torch


class TablesOptimizer(torch.optim.Optimizer):
    """`EmbeddingCollection.optimizer()`: a param group for each table, with its "name" and "lr",
    which learning rate schedulers change. The learning rate is that of `table.optimizer`, too: the
    one that was changed last counts. The formulas are those of the tables' optimizers.

    With update="step", `step` updates the rows and `zero_grad` drops their gradients. With
    update="backward", both do nothing.
    """

    def __init__(self, tables, updates):
        self._tables, self._updates = tables, updates
        groups = []
        for table in tables:
            # PyTorch wants a parameter in each group.
            parameter = torch.nn.Parameter(torch.zeros(1, device="cpu"))
            groups.append({"params": [parameter], "name": table.name, "lr": table.optimizer.lr})
        probe = getattr(updates, "probe", None)
        if probe is not None:
            groups[0]["params"] = [probe]
        self._known = [table.optimizer.lr for table in tables]
        super().__init__(groups, {})

    def synchronize(self):
        """Brings the learning rates of groups and tables together."""
        for i, (group, table) in enumerate(zip(self.param_groups, self._tables)):
            if table.optimizer.lr != self._known[i]:
                group["lr"] = table.optimizer.lr
            elif group["lr"] != self._known[i]:
                table.optimizer.lr = float(group["lr"])
            self._known[i] = table.optimizer.lr

    # A GradScaler then calls `step` even if it has found an infinity, with the attributes
    # `grad_scale` and `found_inf`, as for PyTorch's own fused optimizers.
    _step_supports_amp_scaling = True

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._updates.step(has_scaler=hasattr(self, "grad_scale"))
        return loss

    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none)
        self._updates.drop()
