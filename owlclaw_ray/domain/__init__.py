"""Facts of the runtime as frozen dataclasses and enums: no I/O, no clock, standard library only."""
