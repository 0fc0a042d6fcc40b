"""What the engine asks of the world, as Protocols. Their docstrings are the contract that every adapter keeps."""
