"""A read-only server of the Model Context Protocol: what an agent may ask of this machine. It changes nothing, and can start nothing."""
