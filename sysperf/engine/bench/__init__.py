"""The verb `bench`: what this machine can give, and what each advice of the articles gains on it."""
