"""Where agents live: the directory of agents, and the hosts that hold them."""
