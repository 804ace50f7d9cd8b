"""The papers' simulated tables and figures, simulated again."""
