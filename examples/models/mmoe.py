"""MMoE (Ma et al., 2018): experts that two tasks share, each by a gate of its own."""

import torch
from fields import DENSE, DIM, ITEMS, USERS, mlp

EXPERTS = 3
WIDTH = 16


class Expert(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(width, WIDTH), torch.nn.LayerNorm(WIDTH),
                                          torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.layers(features)


class Mmoe(torch.nn.Module):
    outputs = ("click", "purchase")

    def __init__(self) -> None:
        super().__init__()
        width = 3 * DIM + DENSE
        self.user_embedding = torch.nn.Embedding(USERS, DIM)
        self.item_embedding = torch.nn.Embedding(ITEMS, DIM)
        self.history_embedding = torch.nn.Embedding(ITEMS, DIM)
        self.experts = torch.nn.ModuleList(Expert(width) for _ in range(EXPERTS))
        self.gates = torch.nn.ModuleList(torch.nn.Linear(width, EXPERTS) for _ in self.outputs)
        self.towers = torch.nn.ModuleList(mlp(WIDTH, 8, 1) for _ in self.outputs)

    def forward(self, dense: torch.Tensor, user: torch.Tensor, item: torch.Tensor,
                history: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features = torch.cat([self.user_embedding(user), self.item_embedding(item),
                              self.history_embedding(history).mean(1), dense], dim=1)
        experts = torch.stack([expert(features) for expert in self.experts], dim=1)
        scores = []
        for gate, tower in zip(self.gates, self.towers):
            shares = torch.softmax(gate(features), dim=1).unsqueeze(1)
            scores.append(torch.sigmoid(tower(torch.bmm(shares, experts).squeeze(1))).squeeze(1))
        return tuple(scores)
