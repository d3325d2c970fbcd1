"""DIEN (Zhou et al., 2019): a GRU over the history, and a second one whose steps are as large as
the attention that an item gets."""

import torch
from din import NO_ITEM, Attention
from fields import DENSE, DIM, HISTORY, ITEMS, USERS, mlp


class AttentionGru(torch.nn.Module):
    """A GRU whose update gate is multiplied by the attention (AUGRU); its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = torch.nn.Linear(2 * DIM, 2 * DIM)
        self.candidate = torch.nn.Linear(2 * DIM, DIM)

    def forward(self, states: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(states[:, 0])
        for i in range(HISTORY):
            step = states[:, i]
            update, reset = torch.sigmoid(self.gates(torch.cat([step, state], 1))).chunk(2, dim=1)
            candidate = torch.tanh(self.candidate(torch.cat([step, reset * state], 1)))
            update = update * shares[:, i:i + 1]
            state = (1 - update) * state + update * candidate
        return state


class Dien(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user_embedding = torch.nn.Embedding(USERS, DIM)
        self.item_embedding = torch.nn.Embedding(ITEMS, DIM)
        self.history_embedding = torch.nn.Embedding(ITEMS, DIM)
        self.extract = torch.nn.GRU(DIM, DIM, batch_first=True)
        self.attention = Attention()
        self.evolve = AttentionGru()
        self.deep = mlp(3 * DIM + DENSE, 32, 1)

    def forward(self, dense: torch.Tensor, user: torch.Tensor, item: torch.Tensor,
                history: torch.Tensor) -> torch.Tensor:
        shown = self.item_embedding(item)
        states, _ = self.extract(self.history_embedding(history))
        interest = self.evolve(states, self.attention(shown, states, history != NO_ITEM))
        features = torch.cat([self.user_embedding(user), shown, interest, dense], dim=1)
        return torch.sigmoid(self.deep(features)).squeeze(1)
