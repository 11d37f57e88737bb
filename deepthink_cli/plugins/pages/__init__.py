"""Pages for a browser, and records in the schema of Every Eval Ever."""
