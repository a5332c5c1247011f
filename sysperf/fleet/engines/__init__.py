"""How nodes are reached: each module is a plugin of kind `engines`."""
