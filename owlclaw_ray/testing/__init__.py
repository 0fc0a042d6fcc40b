"""For tests of agents and of adapters: fakes that speak the real protocols, and contract suites."""
