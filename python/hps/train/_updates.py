"""When the rows are updated: in `backward`, or in the step of an optimizer.

The anchor is the collection's one parameter. Look-ups give it a gradient of zero, so that PyTorch
calls `finish` once in each backward pass, when it has run the backward of all look-ups.
"""

import math
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

_SUM_MAX = 2.0**47  # as in src/train/gradient_bound.cc
_ROUNDING = 1e-6  # of a norm in float32, which DistributedDataParallel averages over the ranks


class _Updates:
    def __init__(self, engine, anchor):
        self.skipped = 0  # steps that changed no row
        self._engine, self._anchor = engine, anchor
        self._works = []  # look-ups whose gradients have come in the backward pass under way
        self._pass = None  # its number
        finish = weakref.WeakMethod(self.finish)  # the hook must not keep the engine alive
        anchor.register_post_accumulate_grad_hook(lambda _: finish()())

    def take(self, work, gradients):
        """Takes the gradients of a look-up, in its backward."""
        number = torch._C._current_graph_task_id()
        if self._works and number != self._pass:  # a backward pass that failed before its end
            self._works = []
            self._engine.forget()
        if not self._works:
            self._begin()
        self._pass = number
        self._take(work, gradients)
        self._works.append(work)

    def _begin(self):
        """Called before the first gradients of a pass."""

    def _end(self):
        works, self._works = self._works, []
        for _ in works:
            self._engine.finish_step()
        return works


class BackwardUpdates(_Updates):
    """update="backward". The anchor's gradient is 0, or infinite if no row was changed."""

    def __init__(self, engine, anchor, grad_scaler):
        super().__init__(engine, anchor)
        self._grad_scaler = grad_scaler

    def _scale(self):
        if self._grad_scaler is None or not self._grad_scaler.is_enabled():
            return 1.0
        return 1.0 / self._grad_scaler.get_scale()

    def _take(self, work, gradients):
        self._engine.take_gradients(work, gradients, self._scale())

    def finish(self):
        works = self._end()
        if not self._engine.update(works, self._scale()):
            self.skipped += 1
            self._anchor.grad.fill_(math.inf)

    def step(self, has_scaler):
        """Does nothing: backward has updated the rows."""

    def drop(self):
        """Does nothing: no gradients are kept."""


class StepUpdates(_Updates):
    """update="step". A backward adds to the sums of gradients that the engine keeps for each row;
    `step` updates the rows with them.

    The anchor's gradient is the norm of all sums, so that clip_grad_norm_ counts them. Whatever
    multiplies that gradient afterwards (clip_grad_norm_, GradScaler.unscale_) multiplies the sums;
    whatever removes it (zero_grad) removes them. It is infinite if a gradient was not finite.

    `probe` is a parameter of the tables' optimizer, in which a GradScaler finds what it finds in
    the anchor's gradient: an infinity, if there is one.
    """

    def __init__(self, engine, anchor):
        super().__init__(engine, anchor)
        self.probe = torch.nn.Parameter(torch.ones(1, device="cpu"))
        self._norm = None  # that the anchor's gradient was set to; None: there are no sums
        # Of the anchor's gradient in the step of the network's optimizer since the last backward.
        self._network_factor = None
        self._is_in_network_optimizer = False  # the anchor, as far as is known
        self._is_held_back = False
        own = weakref.ref(self)
        handle = register_optimizer_step_pre_hook(
            lambda optimizer, *_: _tell(own(), optimizer))
        weakref.finalize(self, handle.remove)

    def _begin(self):
        if self._norm is None:
            return
        if self._is_zeroed():
            self.drop()
        elif (factor := self._factor()) != 1:
            self._engine.scale_sums(factor)

    def _take(self, work, gradients):
        self._engine.take_gradients(work, gradients, 1.0, is_applied=False)

    def finish(self):
        is_refused = self._norm == math.inf
        works = self._end()
        norm = math.inf
        if self._engine.add(works) and not is_refused:
            norm = self._engine.norm()
        self._anchor.grad.fill_(norm)
        self._norm = self._anchor.grad.item()
        if not math.isfinite(self._norm):
            self._norm = math.inf
            self._anchor.grad.fill_(math.inf)
            self.skipped += not is_refused
        self.probe.grad = torch.full((1,), math.inf if self._norm == math.inf else 1.0,
                                     device="cpu")
        self._network_factor = None
        self._is_held_back = False

    def _is_zeroed(self):
        gradient = self._anchor.grad
        return gradient is None or (gradient.item() == 0 and self._norm != 0)

    def _factor(self):
        """What the anchor's gradient was multiplied by."""
        if self._norm in (0, math.inf):
            return 1.0
        factor = self._anchor.grad.item() / self._norm
        return 1.0 if abs(factor - 1) < _ROUNDING else factor

    def before_step_of(self, optimizer):
        """Called before the step of every optimizer of the process."""
        if self._norm is None or self._anchor.grad is None or not any(
                parameter is self._anchor for group in optimizer.param_groups
                for parameter in group["params"]):
            return
        self._is_in_network_optimizer = True
        if self._is_held_back:
            raise RuntimeError("the step of the tables' optimizer came before that of the "
                               "network's; with a GradScaler it must come after it")
        self._network_factor = self._factor()

    def step(self, has_scaler):
        """Updates the rows with the sums. `has_scaler`: a GradScaler makes the step."""
        if self._norm is None or self._is_zeroed():
            raise RuntimeError("the tables have no gradients; call backward before the step")
        if self._norm == math.inf:
            return
        factor = self._factor()
        if has_scaler:
            if self._network_factor is not None:
                factor = self._network_factor
            elif factor != 1 or self._is_in_network_optimizer:
                # It has left out the step of the network's optimizer.
                self._is_held_back = True
                self.skipped += 1
                return
            else:
                raise RuntimeError(
                    "with a GradScaler, the optimizer of the network must have the parameter of "
                    "the EmbeddingCollection, too, and make its step first: pass it "
                    "model.parameters(), or [*network.parameters(), *embed.parameters()]")
        if abs(factor) * self._norm > _SUM_MAX:
            self.skipped += 1
            return
        self._engine.apply(factor)

    def drop(self):
        """Forgets the sums."""
        self._engine.drop_sums()
        self._norm = None
        self._anchor.grad = None
        self.probe.grad = None


def _tell(updates, optimizer):
    if updates is not None:
        updates.before_step_of(optimizer)
