"""How a scheduler is told of a bad node, each a plugin of kind `markers`."""
