"""DCN (Wang et al., 2017): layers that cross all features with each other, beside an MLP."""

import torch
from fields import DENSE, DIM, ITEMS, USERS, mlp

LAYERS = 2


class Dcn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = 3 * DIM + DENSE
        self.user_embedding = torch.nn.Embedding(USERS, DIM)
        self.item_embedding = torch.nn.Embedding(ITEMS, DIM)
        self.history_embedding = torch.nn.Embedding(ITEMS, DIM)
        self.cross = torch.nn.ModuleList(torch.nn.Linear(width, 1) for _ in range(LAYERS))
        self.deep = mlp(width, 32, 16)
        self.last = torch.nn.Linear(width + 16, 1)

    def forward(self, dense: torch.Tensor, user: torch.Tensor, item: torch.Tensor,
                history: torch.Tensor) -> torch.Tensor:
        first = torch.cat([self.user_embedding(user), self.item_embedding(item),
                           self.history_embedding(history).sum(1), dense], dim=1)
        crossed = first
        for layer in self.cross:
            crossed = first * layer(crossed) + crossed
        return torch.sigmoid(self.last(torch.cat([crossed, self.deep(first)], 1))).squeeze(1)
