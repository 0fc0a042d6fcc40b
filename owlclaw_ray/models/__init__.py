"""Models: the gateway to them, its clients, prices and token counts, and texts made safe to read."""
