"""GNMT in PyTorch, to measure against: what a competent PyTorch user would write with `nn.LSTM`.

The same shape as gnmt_tf.model: a bidirectional bottom layer, one-directional layers above it, residuals from the
third, additive attention whose query is the bottom decoder layer's output of the step before, and whose context every
decoder layer reads. What `nn.LSTM` does otherwise stays as it is there: tanh on the output, no clipping.
"""

import torch
from torch import nn


class Encoder(nn.Module):
    """int64 [batch_size, source_length] -> float [batch_size, source_length, num_units]."""

    def __init__(self, vocab_size: int, num_units: int, num_layers: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, num_units)
        self.bottom = nn.LSTM(num_units, num_units, batch_first=True, bidirectional=True)
        widths = [2 * num_units] + [num_units] * num_layers
        self.upper = nn.ModuleList(nn.LSTM(widths[i], num_units, batch_first=True) for i in range(num_layers - 1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """See the class."""
        outputs, _ = self.bottom(self.dropout(self.embedding(ids)))
        for number, layer in enumerate(self.upper, start=2):
            below = outputs
            outputs, _ = layer(self.dropout(below))
            if number > 2:
                outputs = outputs + below
        return outputs


class AttentionDecoderLayer(nn.Module):
    """The bottom decoder layer with its attention, step by step.

    embeddings [batch_size, target_length, num_units], memory [batch_size, source_length, memory_size] -> outputs
    [batch_size, target_length, num_units] and contexts [batch_size, target_length, memory_size].
    """

    def __init__(self, num_units: int, memory_size: int):
        super().__init__()
        self.cell = nn.LSTMCell(num_units + memory_size, num_units)
        self.key = nn.Linear(memory_size, num_units, bias=False)
        self.query = nn.Linear(num_units, num_units, bias=False)
        self.score = nn.Linear(num_units, 1, bias=False)

    def forward(self, embeddings: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See the class."""
        keys = self.key(memory)
        m = c = embeddings.new_zeros(embeddings.shape[0], self.cell.hidden_size)
        outputs, contexts = [], []
        for t in range(embeddings.shape[1]):
            scores = self.score(torch.tanh(keys + self.query(m)[:, None])).squeeze(-1)
            context = torch.bmm(torch.softmax(scores, dim=-1)[:, None], memory).squeeze(1)
            m, c = self.cell(torch.cat([embeddings[:, t], context], dim=-1), (m, c))
            outputs.append(m)
            contexts.append(context)
        return torch.stack(outputs, dim=1), torch.stack(contexts, dim=1)


class Decoder(nn.Module):
    """int64 [batch_size, target_length] and memory -> logits [batch_size, target_length, vocab_size]."""

    def __init__(self, vocab_size: int, num_units: int, num_layers: int, memory_size: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, num_units)
        self.bottom = AttentionDecoderLayer(num_units, memory_size)
        self.upper = nn.ModuleList(
            nn.LSTM(num_units + memory_size, num_units, batch_first=True) for _ in range(num_layers - 1)
        )
        self.projection = nn.Linear(num_units, vocab_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """See the class."""
        outputs, contexts = self.bottom(self.dropout(self.embedding(ids)), memory)
        for number, layer in enumerate(self.upper, start=2):
            below = outputs
            outputs, _ = layer(self.dropout(torch.cat([below, contexts], dim=-1)))
            if number > 2:
                outputs = outputs + below
        return self.projection(self.dropout(outputs))

    def beam_search(self, memory: torch.Tensor, mask: torch.Tensor, width: int, length: int) -> torch.Tensor:
        """Hypotheses of so many pieces: int64 [batch_size, width, length], the best first.

        `memory` is [batch_size, source_length, memory_size], `mask` bool [batch_size, source_length], True at padding.
        """
        batch_size, cell = memory.shape[0], self.bottom.cell
        memory, mask = memory.repeat_interleave(width, dim=0), mask.repeat_interleave(width, dim=0)
        keys = self.bottom.key(memory)
        rows, num_units = memory.shape[0], cell.hidden_size
        c = m = memory.new_zeros(rows, num_units)
        states = [(memory.new_zeros(1, rows, num_units),) * 2 for _ in self.upper]
        pieces, ids = torch.zeros(rows, 0, dtype=torch.int64), torch.full([rows], 2)
        # At first all hypotheses of a sentence are the same one.
        scores = torch.full([batch_size, width], float("-inf"))
        scores[:, 0] = 0.0
        first_rows = torch.arange(batch_size)[:, None] * width
        for _ in range(length):
            energies = self.bottom.score(torch.tanh(keys + self.bottom.query(m)[:, None])).squeeze(-1)
            probs = torch.softmax(energies.masked_fill(mask, float("-inf")), dim=-1)
            context = torch.bmm(probs[:, None], memory).squeeze(1)
            m, c = cell(torch.cat([self.embedding(ids), context], dim=-1), (m, c))
            outputs, new_states = m, []
            for number, (layer, state) in enumerate(zip(self.upper, states, strict=True), start=2):
                below = outputs
                outputs, state = layer(torch.cat([below, context], dim=-1)[:, None], state)
                outputs = outputs.squeeze(1) + below if number > 2 else outputs.squeeze(1)
                new_states.append(state)
            log_probs = torch.log_softmax(self.projection(outputs), dim=-1).view(batch_size, width, -1)
            scores, places = (scores[:, :, None] + log_probs).flatten(1).topk(width, dim=1)
            parents = (first_rows + places // log_probs.shape[-1]).flatten()
            ids = (places % log_probs.shape[-1]).flatten()
            m, c = m[parents], c[parents]
            states = [(state[0][:, parents], state[1][:, parents]) for state in new_states]
            pieces = torch.cat([pieces[parents], ids[:, None]], dim=1)
        return pieces.view(batch_size, width, length)


class PyTorchGNMT(nn.Module):
    """Encoder and decoder with `train_step`."""

    def __init__(self, vocab_size: int, num_units: int, num_layers: int, dropout: float):
        super().__init__()
        self.encoder = Encoder(vocab_size, num_units, num_layers, dropout)
        memory_size = num_units if num_layers > 1 else 2 * num_units
        self.decoder = Decoder(vocab_size, num_units, num_layers, memory_size, dropout)
        for weight in self.parameters():
            nn.init.uniform_(weight, -0.04, 0.04)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=2e-4)

    def beam_search(self, source: torch.Tensor, width: int, length: int) -> torch.Tensor:
        """int64 [batch_size, source_length], 0 where padded -> hypotheses of so many pieces, the best first."""
        return self.decoder.beam_search(self.encoder(source), source == 0, width, length)

    def train_step(self, source: torch.Tensor, target_input: torch.Tensor, target_output: torch.Tensor) -> float:
        """One update of Adam with a gradient norm of at most 5; returns the loss in nats per piece."""
        self.train()
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.decoder(target_input, self.encoder(source))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target_output.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 5.0)
        self.optimizer.step()
        return float(loss)
