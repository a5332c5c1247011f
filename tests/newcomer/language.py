"""Trains a small language model, and logs the norm of each row of its weights after each step."""

import logging

import torch
from torch import nn

torch.manual_seed(0)
words, width, length = 256, 32, 16
model = nn.Sequential(nn.Embedding(words, width), nn.TransformerEncoderLayer(width, 4, 128, batch_first=True), nn.Linear(width, words))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
logging.basicConfig(filename="train.log", level=logging.INFO)
for step in range(1_000_000):
    text = torch.randint(0, words, (4, length + 1))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    for name, weight in model.named_parameters():
        for row, norm in enumerate(weight.detach().reshape(len(weight), -1).norm(dim=1).tolist()):
            logging.info("step %d: %s[%d] has norm %.6f", step, name, row, norm)
