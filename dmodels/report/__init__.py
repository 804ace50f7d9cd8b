"""Pictures, tables and pages, made from answers; nothing is computed here."""
