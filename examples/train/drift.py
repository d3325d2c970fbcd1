"""A stream of clicks whose truth drifts: tastes walk, and new items take the place of old ones."""

from __future__ import annotations

import numpy as np
from data import Samples

FIELDS = ["user", "item"]
USERS, ITEMS, FACTORS = 1000, 400, 4
WALK = 0.35           # of a hidden factor in one window; the factors keep their variance
REPLACED_SHARE = 0.05  # of the items in one window


class Drift:
    def __init__(self, seed: int = 5) -> None:
        self.random = np.random.default_rng(seed)
        self.user_keys = self._new_keys(USERS)
        self.item_keys = self._new_keys(ITEMS)
        self.users = self.random.normal(0, 0.9, (USERS, FACTORS))
        self.items = self.random.normal(0, 0.9, (ITEMS, FACTORS))

    def _new_keys(self, count: int) -> np.ndarray:
        return self.random.integers(-2**63, 2**63 - 1, count)

    def window(self, count: int) -> Samples:
        """Samples of the truth as it is, which moves on then."""
        user = self.random.integers(0, USERS, count)
        item = self.random.integers(0, ITEMS, count)
        logit = 1.5 * (self.users[user] * self.items[item]).sum(1)
        clicked = self.random.random(count) < 1 / (1 + np.exp(-logit))
        samples = Samples(keys={"user": self.user_keys[user], "item": self.item_keys[item]},
                          lists={}, labels=clicked.astype(np.float32))
        self._move()
        return samples

    def _move(self) -> None:
        self.items = (np.sqrt(1 - WALK**2) * self.items +
                      WALK * self.random.normal(0, 0.9, self.items.shape))
        gone = self.random.choice(ITEMS, round(ITEMS * REPLACED_SHARE), replace=False)
        self.item_keys[gone] = self._new_keys(len(gone))
        self.items[gone] = self.random.normal(0, 0.9, (len(gone), FACTORS))
