"""Wide & Deep (Cheng et al., 2016): a linear model of features beside an MLP over embeddings."""

import torch
from fields import DENSE, DIM, HISTORY, ITEMS, USERS, mlp


class Wdl(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user_wide = torch.nn.Embedding(USERS, 1)
        self.item_wide = torch.nn.Embedding(ITEMS, 1)
        self.user_deep = torch.nn.Embedding(USERS, DIM)
        self.item_deep = torch.nn.Embedding(ITEMS, DIM)
        self.history_deep = torch.nn.Embedding(ITEMS, DIM)
        self.deep = mlp((2 + HISTORY) * DIM + DENSE, 64, 32, 1)

    def forward(self, dense: torch.Tensor, user: torch.Tensor, item: torch.Tensor,
                history: torch.Tensor) -> torch.Tensor:
        wide = self.user_wide(user) + self.item_wide(item)
        # The items of the history keep their order: their rows are not pooled.
        deep = self.deep(torch.cat([dense, self.user_deep(user), self.item_deep(item),
                                    self.history_deep(history).flatten(1)], dim=1))
        return torch.sigmoid(wide + deep).squeeze(1)
