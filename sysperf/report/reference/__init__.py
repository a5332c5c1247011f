"""What can be looked up: rules, causes, facts, statements, schemas, manual pages."""
