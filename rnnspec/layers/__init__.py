"""Layers of cells over a sequence, with all options of torch.nn.LSTM."""
