"""When the rows are updated: in `backward`, or in the step of an optimizer.

The anchor is the collection's one parameter. Look-ups give it a gradient of zero, so that PyTorch
calls `finish` once in each backward pass, when it has run the backward of all look-ups.
"""

import gc
import itertools
import math
import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from hps._hps import train as _engine

_ROUNDING = 1e-6  # of a norm in float32, which DistributedDataParallel averages over the ranks


class _Updates:
    """A subclass has `_take(work, gradients)`, for the gradients of a look-up, `_end_pass(works)`,
    and what an optimizer of PyTorch calls: `step(scaler)` and `drop()`."""

    skipped = 0  # steps that changed no row

    def __init__(self, engine, anchor):
        self.anchor = anchor
        self._engine = engine
        # By backward pass: the look-ups whose gradients have come. A pass may be within another.
        self._works = {}
        finish = weakref.WeakMethod(self.finish)  # the hook must not keep the engine alive

        @torch.compiler.disable
        def hook(_):
            if (method := finish()) is not None:
                method()
        anchor.register_post_accumulate_grad_hook(hook)

    def before_forward(self):
        """Called before a look-up in training mode."""
        if self._may_be_moved():
            # Through `data`, so that autograd accepts what was computed from the anchor before.
            self.anchor.data.zero_()
        if self._works and torch._C._current_graph_task_id() == -1:
            for task in list(self._works):  # their backward passes failed
                self._forget(task)

    def _may_be_moved(self):
        """Whether an optimizer may have changed the anchor, as far as is known without waiting."""
        return self.anchor.item() != 0

    def _forget(self, task):
        """Forgets the gradients of a backward pass that has ended, if the anchor did not get its
        gradient. Returns whether the sums of the tables have a part of them."""
        works = self._works.pop(task, [])
        return self._engine.forget(works, list(itertools.chain(*self._works.values())))

    def take(self, work, gradients):
        """Takes the gradients of a look-up, in its backward."""
        task = torch._C._current_graph_task_id()
        if task not in self._works:
            self._begin_pass()
            self._works[task] = []
            if task != -1:  # torch.autograd.grad may compute other gradients only
                torch.autograd.Variable._execution_engine.queue_callback(
                    lambda: self._forget(task))
        self._take(work, gradients)
        self._works[task].append(work)

    def _begin_pass(self):
        """Called before the first gradients of a pass."""

    def finish(self):
        """Called when the anchor has got its gradient."""
        works = self._works.pop(torch._C._current_graph_task_id(), None)
        if works:  # else it got a gradient that is not of a look-up
            self._end_pass(works)
            for work in works:
                work.release()
                self._engine.finish_step()


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

    def _end_pass(self, works):
        if not self._engine.update(works, self._scale()):
            self.skipped += 1
            self.anchor.grad.fill_(math.inf)

    def step(self, scaler):
        """Does nothing: backward has updated the rows."""

    def drop(self):
        """Does nothing: no gradients are kept."""


class DeviceUpdates(BackwardUpdates):
    """update="backward" of tables on a GPU. The GPU decides whether rows may change; nothing here
    waits to hear what it has decided.

    An optimizer that moves the anchor without counting its version, through `data` or in a CUDA
    graph, is not noticed: the anchor then keeps a value, which nothing uses.
    """

    def __init__(self, engine, anchor):
        super().__init__(engine, anchor, None)
        self._version = anchor._version

    @property
    def skipped(self):
        return self._engine.skipped_updates()

    def _may_be_moved(self):
        last, self._version = self._version, self.anchor._version
        return self._version != last

    def _end_pass(self, works):
        self._engine.update(works, self.anchor.grad)


class StepUpdates(_Updates):
    """update="step". A backward adds to the sums of gradients that the engine keeps for each row;
    `step` updates the rows with them, once.

    The anchor's gradient is the norm of all sums, so that clip_grad_norm_ counts them. Whatever
    multiplies that gradient afterwards (clip_grad_norm_, GradScaler.unscale_) multiplies the sums;
    whatever removes it (zero_grad) removes them. It is infinite if a gradient was not finite.

    `probe` is a parameter of the tables' optimizer, in which a GradScaler finds what it finds in
    the anchor's gradient: an infinity, if there is one.
    """

    def __init__(self, engine, anchor):
        super().__init__(engine, anchor)
        self.probe = torch.nn.Parameter(torch.ones(1, dtype=torch.float32, device="cpu"))
        self._norm = None  # that the anchor's gradient was set to; None: there are no sums
        self._is_stepped = False  # since the last backward
        # Of the anchor's gradient in the step of the network's optimizer since the last backward.
        self._network_factor = None
        self._is_in_network_optimizer = False  # the anchor, as far as is known
        self._is_held_back = False
        own = weakref.ref(self)
        handle = register_optimizer_step_pre_hook(torch.compiler.disable(
            lambda optimizer, *_: _tell(own(), optimizer)))
        weakref.finalize(self, handle.remove)

    def before_forward(self):
        super().before_forward()
        if self._norm is not None and self.anchor.grad is None:
            self.drop()

    def _forget(self, task):
        are_in_sums = super()._forget(task)
        if are_in_sums and self._norm is not None:
            self._set_norm(math.inf)
        return are_in_sums

    def _begin_pass(self):
        gradient = 0.0 if self.anchor.grad is None else self.anchor.grad.item()
        if self._is_stepped and gradient != 0:
            raise RuntimeError("call zero_grad() between the step of the tables' optimizer and the "
                               "next backward")
        self._is_stepped = False
        if self._norm is None:
            return
        if gradient == 0:
            self.drop()
        elif (factor := self._factor()) != 1:
            self._engine.scale_sums(factor)

    def _take(self, work, gradients):
        self._engine.take_gradients(work, gradients, 1.0, is_applied=False)

    def _end_pass(self, works):
        is_allowed = self._engine.add(works) and self._norm != math.inf
        self._set_norm(self._engine.norm() if is_allowed else math.inf)

    def _set_norm(self, norm):
        if self.anchor.grad is None:
            self.anchor.grad = torch.zeros(1, dtype=torch.float32, device="cpu")
        self.anchor.grad.fill_(norm)
        was_infinite, norm = self._norm == math.inf, self.anchor.grad.item()
        self._norm = norm if math.isfinite(norm) else math.inf
        self.anchor.grad.fill_(self._norm)
        self.skipped += self._norm == math.inf and not was_infinite
        self.probe.grad = torch.full((1,), math.inf if self._norm == math.inf else 1.0,
                                     dtype=torch.float32, device="cpu")
        self._network_factor = None
        self._is_held_back = False

    def _factor(self):
        """What the anchor's gradient was multiplied by."""
        if self._norm in (0, math.inf):
            return 1.0
        factor = self.anchor.grad.item() / self._norm
        return 1.0 if abs(factor - 1) < _ROUNDING else factor

    def before_step_of(self, optimizer):
        """Called before the step of every optimizer of the process."""
        if not _has(optimizer, self.anchor):
            return
        self._is_in_network_optimizer = True
        if self._is_held_back:
            self._is_held_back = False
            raise RuntimeError("the step of the tables' optimizer came before that of the "
                               "network's; with a GradScaler it must come after it")
        # A GradScaler tells fused optimizers these, and leaves the gradients to them.
        scale, found = (getattr(optimizer, name, None) for name in ("grad_scale", "found_inf"))
        if self._norm is None or self.anchor.grad is None or (found is not None and found.item()):
            return
        self._network_factor = self._factor() / (1.0 if scale is None else scale.item())

    def step(self, scaler):
        """Updates the rows with the sums. `scaler`: whether a GradScaler makes the step."""
        if self._norm is None or self.anchor.grad is None:
            raise RuntimeError("the tables have no gradients; call backward before the step")
        factor = self._factor_of_step(scaler)
        if factor is not None:
            self._engine.apply(factor)
        self._engine.drop_sums()
        self._norm = None
        self._is_stepped = True

    def _factor_of_step(self, scaler):
        """None: the rows must not change."""
        if self._norm == math.inf:
            return None
        factor = self._factor()
        if scaler:
            if self._network_factor is not None:
                factor = self._network_factor
            elif self._is_in_network_optimizer or _is_in_an_optimizer(self.anchor):
                # It has left out the step of the network's optimizer.
                self._is_held_back = True
                self.skipped += 1
                return None
            else:
                raise RuntimeError(
                    "with a GradScaler, the optimizer of the network must have the parameter of "
                    "the EmbeddingCollection, too, and make its step first: pass it "
                    "model.parameters(), or [*network.parameters(), *embed.parameters()]")
        is_cleared = factor == 0 and self._norm != 0  # by clip_grad_norm_, if a norm is infinite
        if is_cleared or not abs(factor) * self._norm <= _engine.SCALED_SUM_MAX:
            self.skipped += 1
            return None
        return factor

    def drop(self):
        """Forgets the sums."""
        self._engine.drop_sums()
        self._norm = None
        self._is_stepped = False
        self.anchor.grad = None
        self.probe.grad = None


def _has(optimizer, parameter):
    return any(each is parameter for group in optimizer.param_groups for each in group["params"])


def _is_in_an_optimizer(parameter):
    """Slow, for the first step that a GradScaler leaves out."""
    return any(issubclass(type(each), torch.optim.Optimizer) and _has(each, parameter)
               for each in gc.get_objects())


def _tell(updates, optimizer):
    if updates is not None:
        updates.before_step_of(optimizer)
