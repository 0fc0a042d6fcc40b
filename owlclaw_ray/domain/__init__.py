"""Facts of the runtime as frozen structs and enums: no I/O, no clock, nothing imported but the standard library and msgspec."""
