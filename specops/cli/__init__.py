"""Arguments -> one call of the engine -> one of the ui. Nothing heavy is imported before a command runs."""
