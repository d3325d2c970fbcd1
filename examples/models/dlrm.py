"""DLRM (Naumov et al., 2019): dot products of all pairs of features, between two MLPs."""

import torch
from fields import DENSE, DIM, ITEMS, USERS, mlp


class Dlrm(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user_embedding = torch.nn.Embedding(USERS, DIM)
        self.item_embedding = torch.nn.Embedding(ITEMS, DIM)
        self.history_embedding = torch.nn.Embedding(ITEMS, DIM)
        self.bottom = mlp(DENSE, 16, DIM)
        self.top = mlp(DIM + 6, 32, 1)
        # Where the pairs below the diagonal of [4, 4] products are.
        self.register_buffer("pairs", torch.tensor([4 * i + j for i in range(4) for j in range(i)]))

    def forward(self, dense: torch.Tensor, user: torch.Tensor, item: torch.Tensor,
                history: torch.Tensor) -> torch.Tensor:
        bottom = self.bottom(dense)
        features = torch.stack([bottom, self.user_embedding(user), self.item_embedding(item),
                                self.history_embedding(history).sum(1)], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        pairs = products.flatten(1).index_select(1, self.pairs)
        return torch.sigmoid(self.top(torch.cat([bottom, pairs], dim=1))).squeeze(1)
