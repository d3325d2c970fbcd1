"""DIN (Zhou et al., 2018): the items of the history count by how they relate to the item shown."""

import torch
from fields import DENSE, DIM, ITEMS, USERS

NO_ITEM = 0  # fills a history that is short


class Attention(torch.nn.Module):
    """The share of each item of the history, [batch, k]; none for NO_ITEM."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4 * DIM, 16), torch.nn.PReLU(),
                                          torch.nn.Linear(16, 1))

    def forward(self, item: torch.Tensor, history: torch.Tensor,
                is_item: torch.Tensor) -> torch.Tensor:
        shown = item.unsqueeze(1).expand_as(history)
        related = self.layers(torch.cat([history, shown, history - shown, history * shown], dim=2))
        return torch.softmax(torch.where(is_item, related.squeeze(2), -1e9), dim=1)


class Din(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user_embedding = torch.nn.Embedding(USERS, DIM)
        self.item_embedding = torch.nn.Embedding(ITEMS, DIM)
        self.history_embedding = torch.nn.Embedding(ITEMS, DIM)
        self.attention = Attention()
        self.normal = torch.nn.BatchNorm1d(3 * DIM + DENSE)
        self.deep = torch.nn.Sequential(torch.nn.Linear(3 * DIM + DENSE, 32), torch.nn.PReLU(32),
                                        torch.nn.Linear(32, 1))

    def forward(self, dense: torch.Tensor, user: torch.Tensor, item: torch.Tensor,
                history: torch.Tensor) -> torch.Tensor:
        shown = self.item_embedding(item)
        seen = self.history_embedding(history)
        shares = self.attention(shown, seen, history != NO_ITEM)
        interest = torch.bmm(shares.unsqueeze(1), seen).squeeze(1)
        features = torch.cat([self.user_embedding(user), shown, interest, dense], dim=1)
        return torch.sigmoid(self.deep(self.normal(features))).squeeze(1)
