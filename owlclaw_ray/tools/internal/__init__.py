"""Tools of the runtime itself, beside the seven."""
