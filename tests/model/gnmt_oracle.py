"""GNMT from the equations of the paper in NumPy, one sentence pair at a time, without batches, masks or padding."""

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


class Oracle:
    """Reads the weights of a model once; everything else is written out from eq. 4, 6, 10, 11 and 13."""

    def __init__(self, model):
        self.model, self.config = model, model.config
        self.delta, self.gamma = self.config.clip_bound, self.config.logit_bound

    def clip(self, x):
        return np.maximum(-self.delta, np.minimum(self.delta, x))

    def lstm(self, layer, x, c, m):
        """Eq. 11 with eq. 10 on the cell."""
        weights = (layer.kernel, layer.recurrent_kernel, layer.bias)
        kernel, recurrent, bias = (w.numpy().astype(np.float64) for w in weights)
        i, i_prime, f, o = np.split(x @ kernel + m @ recurrent + bias, 4)
        c = self.clip(c * sigmoid(f) + np.tanh(i_prime) * sigmoid(i))
        out = np.tanh(c) if self.config.output_activation == "tanh" else c
        return c, out * sigmoid(o)

    def run_layer(self, layer, xs):
        c = m = np.zeros(self.config.num_units)
        outputs = []
        for x in xs:
            c, m = self.lstm(layer, x, c, m)
            outputs.append(m)
        return outputs

    def encode(self, source_ids):
        encoder = self.model.encoder
        embeddings = self.model.source_embedding.embeddings.numpy().astype(np.float64)
        xs = [self.clip(embeddings[i]) for i in source_ids]
        forward = self.run_layer(encoder.forward_layer, xs)
        backward = self.run_layer(encoder.backward_layer, xs[::-1])[::-1]
        xs = [np.concatenate(pair) for pair in zip(forward, backward, strict=True)]
        for number, layer in enumerate(encoder.upper_layers, start=2):
            ms = self.run_layer(layer, xs)
            residual = number >= self.config.first_residual_layer
            xs = [self.clip(m + x) if residual else m for m, x in zip(ms, xs, strict=True)]
        return xs

    def attention(self, query, memory):
        """Eq. 4: a hidden layer over query and memory, one score a source position."""
        layer = self.model.decoder.bottom_layer
        hidden = [
            np.tanh(query @ layer.query_kernel.numpy() + x @ layer.key_kernel.numpy() + layer.key_bias.numpy())
            for x in memory
        ]
        scores = np.exp([h @ layer.score_kernel.numpy() for h in hidden])
        return scores / scores.sum()

    def logits(self, source_ids, target_input_ids):
        """Logits [target_length, vocab_size] and attention [target_length, source_length]."""
        memory = self.encode(source_ids)
        decoder, config = self.model.decoder, self.config
        embeddings = self.model.target_embedding.embeddings.numpy().astype(np.float64)
        layers = [decoder.bottom_layer.lstm, *decoder.upper_layers]
        states = [(np.zeros(config.num_units), np.zeros(config.num_units)) for _ in layers]
        all_logits, all_probs = [], []
        for piece in target_input_ids:
            probs = self.attention(states[0][1], memory)
            context = sum(p * x for p, x in zip(probs, memory, strict=True))
            x = self.clip(embeddings[piece])
            for number, layer in enumerate(layers, start=1):
                below = x
                states[number - 1] = self.lstm(layer, np.concatenate([x, context]), *states[number - 1])
                x = states[number - 1][1]
                if number >= config.first_residual_layer:
                    x = self.clip(x + below)
            projection = self.model.output_projection
            sums = x @ projection.kernel(self.model.tied_embeddings).numpy() + projection.bias.numpy()
            all_logits.append(np.maximum(-self.gamma, np.minimum(self.gamma, sums)))
            all_probs.append(probs)
        return np.stack(all_logits), np.stack(all_probs)
