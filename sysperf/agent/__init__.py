"""The agent: samples this machine, keeps its history, and answers on a socket. It reads, and changes nothing."""
