"""Units, flags, records, numerical habits: what every other floor stands on."""
