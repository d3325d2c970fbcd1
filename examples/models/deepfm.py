"""DeepFM (Guo et al., 2017): a factorization machine beside an MLP over the same factors."""

import torch
from fields import DENSE, DIM, ITEMS, USERS, mlp


class DeepFm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user_weight = torch.nn.Embedding(USERS, 1)
        self.item_weight = torch.nn.Embedding(ITEMS, 1)
        self.user_factors = torch.nn.Embedding(USERS, DIM)
        self.item_factors = torch.nn.Embedding(ITEMS, DIM)
        self.history_factors = torch.nn.Embedding(ITEMS, DIM)
        self.bias = torch.nn.Parameter(torch.zeros(1))
        self.deep = mlp(3 * DIM + DENSE, 32, 16, 1)

    def forward(self, dense: torch.Tensor, user: torch.Tensor, item: torch.Tensor,
                history: torch.Tensor) -> torch.Tensor:
        factors = torch.stack([self.user_factors(user), self.item_factors(item),
                               self.history_factors(history).mean(1)], dim=1)
        pairs = 0.5 * (factors.sum(1).square() - factors.square().sum(1)).sum(1)
        weights = (self.user_weight(user) + self.item_weight(item)).squeeze(1)
        deep = self.deep(torch.cat([factors.flatten(1), dense], dim=1)).squeeze(1)
        return torch.sigmoid(self.bias + weights + pairs + deep)
