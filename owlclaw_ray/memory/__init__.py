"""Long-term memory without any index: the format of MEMORY.md, its file, its archive, and the order of recall."""
