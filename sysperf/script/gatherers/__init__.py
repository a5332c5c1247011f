"""Facts out of a file, a subject each: copies, waits, loaders, settings of training, and the like. `examine` calls them."""
