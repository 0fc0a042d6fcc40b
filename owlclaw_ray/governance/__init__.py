"""Rules that bound what agents do, and the record of what they did."""
