"""The template language of connectors: the sandbox that runs templates, and the printer that reads their lines back."""
